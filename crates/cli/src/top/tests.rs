//! The screen, by readings of groups that are made here in real memories, and by keys.

use super::{
    draw::{Colours, draw},
    reading::Reading,
    view::{Action, Key, Sort, View},
};
use folioswap_group::{counters::Gauge, decisions::Scope};
use folioswap_supervisor::{
    ipc::{description::Description, group_memory::GroupMemory, groups::Group},
    view::GroupSnapshot,
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

/// A group of one process with this charge, in MiB, within 40 MiB.
fn group(name: &str, pid: u32, charge: u64) -> GroupSnapshot {
    let memory = GroupMemory::create().expect("memory");
    memory.writer().initialise(pid, 40 << 20, Scope::Total, []);
    let segment = memory.group().segment;
    let id = memory.writer().assign(segment, std::process::id()).expect("a seat");
    let member = segment.member(id).expect("a member");
    member.charge_bytes.store(charge << 20, Relaxed);
    member.figures.set(Gauge::Swapped, charge << 21);
    let description = Description::new(Some(name), &["load.py".into(), "1000".into()]);
    let socket = String::new();
    let memory = memory.map_again().expect("a view");
    GroupSnapshot::read(&Group { owner: 0, description, socket, memory, names: Vec::new() })
}

fn reading(groups: Vec<GroupSnapshot>, at: Instant) -> Reading {
    Reading { at, clock: "16:02:11".into(), groups, mounts: Vec::new(), ram: 8 << 30, available: 1 << 30 }
}

fn three() -> View {
    let mut view = View::default();
    view.take(reading(vec![group("b", 2, 10), group("a", 1, 20), group("c", 3, 39)], Instant::now()));
    view
}

fn press(view: &mut View, code: KeyCode) -> Action {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(view: &mut View, text: &str) -> Action {
    text.chars().for_each(|c| assert_eq!(press(view, KeyCode::Char(c)), Action::None));
    press(view, KeyCode::Enter)
}

/// The screen as lines, and the colours on it.
fn screen(view: &mut View, (width, height): (u16, u16), colours: Colours) -> (Vec<String>, Vec<Color>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(frame, view, colours)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    ((0..height).map(line).collect(), buffer.content().iter().map(|cell| cell.fg).collect())
}

fn names(view: &View) -> Vec<String> {
    view.rows.iter().map(super::row::Row::name).collect()
}

#[test]
fn a_screen_of_any_size_shows_what_it_has_room_for() {
    let mut view = three();
    let (lines, _) = screen(&mut view, (80, 24), Colours::Some);
    assert!(lines[0].starts_with(" folioswap top  3 groups  0 mounts"), "{lines:#?}");
    assert!(lines[0].ends_with("RAM 8.0G  free 1.0G  16:02:11 "), "{lines:#?}");
    assert!(lines[1].starts_with("GROUP            LIMIT  CHARGE SWAPPED"), "{lines:#?}");
    assert!(lines[2].starts_with("a                40.0M   20.0M   40.0M"), "{lines:#?}");
    assert!(lines[23].starts_with(" q quit   s sort"), "{lines:#?}");
    let (lines, _) = screen(&mut view, (160, 50), Colours::Some);
    assert!(lines[2].contains("[#####-----]") && lines[2].contains("load.py 1000"), "{lines:#?}");
    for size in [(1, 1), (3, 2), (20, 5), (40, 10), (300, 100)] {
        for below in [Action::None, press(&mut view, KeyCode::Enter), press(&mut view, KeyCode::Char('t'))] {
            assert_eq!(below, Action::None);
            screen(&mut view, size, Colours::Some);
        }
    }
}

/// The charts of the last minutes are as high as there is room, and say since when.
#[test]
fn a_timeline_shows_the_last_minutes_of_the_chosen_one() {
    let mut view = three();
    let begun = Instant::now();
    for second in 1..=70 {
        let groups = vec![group("a", 1, if second > 60 { 40 } else { 20 })];
        view.take(reading(groups, begun + Duration::from_secs(second)));
    }
    press(&mut view, KeyCode::Char('t'));
    let (lines, _) = screen(&mut view, (80, 40), Colours::None);
    let at = |text: &str| {
        lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{lines:#?}"))
    };
    assert!(lines[at("1:10 ago")].ends_with(" now"), "{lines:#?}");
    let (charge, out) = (at(" charge, 100 % of the limit at most"), at(" out, 0/s at most"));
    assert!(out - charge > 5 && at(" waiting, 0 % at most") > at(" in, 0/s at most"), "{lines:#?}");
    // The last ten columns are twice as high as those before.
    let height = |column: usize| {
        let cells = lines[charge + 1..out].iter().filter_map(|line| line.chars().nth(column));
        cells.filter(|cell| *cell != ' ').count()
    };
    assert_eq!((height(75), height(40) * 2), (out - charge - 1, (out - charge - 1).next_multiple_of(2)));
    press(&mut view, KeyCode::Enter);
    press(&mut view, KeyCode::Enter);
    let (lines, _) = screen(&mut view, (80, 24), Colours::None);
    assert!(lines.iter().any(|line| line.contains("refaults")), "the summary is back: {lines:#?}");
}

#[test]
fn without_colours_there_are_none() {
    let mut view = three();
    for colours in [Colours::None, Colours::Some] {
        let (_, shown) = screen(&mut view, (160, 50), colours);
        let has_some = shown.iter().any(|colour| *colour != Color::Reset);
        assert_eq!(has_some, colours == Colours::Some);
    }
}

#[test]
fn the_chosen_one_stays_chosen_wherever_it_goes() {
    let mut view = three();
    assert_eq!(names(&view), ["a", "b", "c"]);
    press(&mut view, KeyCode::Down);
    press(&mut view, KeyCode::Char('s'));
    assert_eq!((view.sort, names(&view)), (Sort::Charge, vec!["c".into(), "a".into(), "b".into()]));
    assert_eq!(view.chosen().map(super::row::Row::name), Some("b".to_owned()));
    // When it ends, another is chosen.
    view.take(reading(vec![group("a", 1, 20)], Instant::now() + Duration::from_secs(1)));
    assert_eq!(view.chosen().map(super::row::Row::name), Some("a".to_owned()));
    view.take(reading(Vec::new(), Instant::now() + Duration::from_secs(2)));
    assert!(view.chosen().is_none());
    press(&mut view, KeyCode::Char('m'));
    assert_eq!(view.typed, None, "nothing is there to be changed");
}

#[test]
fn of_two_hundred_groups_the_last_is_seen() {
    let mut view = View::default();
    let groups = (0..200).map(|number| group(&format!("g{number:03}"), number + 1, 10)).collect();
    view.take(reading(groups, Instant::now()));
    let seen = |view: &mut View, name: &str| {
        let (lines, _) = screen(view, (80, 24), Colours::None);
        lines.iter().any(|line| line.starts_with(name))
    };
    assert!(seen(&mut view, "g000") && !seen(&mut view, "g199"));
    press(&mut view, KeyCode::End);
    assert!(seen(&mut view, "g199") && !seen(&mut view, "g000"));
    press(&mut view, KeyCode::PageUp);
    press(&mut view, KeyCode::Home);
    assert!(seen(&mut view, "g000"));
}

#[test]
fn a_limit_is_typed_and_judged() {
    let mut view = three();
    press(&mut view, KeyCode::Char('m'));
    assert_eq!(typed(&mut view, "2G"), Action::SetLimit(Key::Group(1), 2 << 30));
    press(&mut view, KeyCode::Char('m'));
    assert_eq!(typed(&mut view, "12q"), Action::None);
    assert!(view.message.contains("not a size"), "{}", view.message);
    press(&mut view, KeyCode::Char('m'));
    // While a size is typed, keys are characters.
    assert_eq!(typed(&mut view, "q"), Action::None);
    press(&mut view, KeyCode::Char('m'));
    press(&mut view, KeyCode::Char('9'));
    press(&mut view, KeyCode::Backspace);
    assert_eq!(view.typed.as_deref(), Some(""));
    press(&mut view, KeyCode::Esc);
    assert_eq!((view.typed.clone(), press(&mut view, KeyCode::Esc)), (None, Action::Quit));
    assert_eq!(press(&mut view, KeyCode::Char('q')), Action::Quit);
}
