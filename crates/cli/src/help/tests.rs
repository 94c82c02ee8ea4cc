use super::*;

/// What a terminal of 80 columns shows without breaking a line.
const WIDTH: usize = 78;

fn check(name: &str, text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{name}: {} columns: {line}", line.chars().count());
    }
}

#[test]
fn topics_fit_into_a_terminal() {
    for Topic { name, text, .. } in TOPICS {
        check(name, text);
        assert!(text.ends_with('\n') && !text.contains('\t'), "{name}");
    }
}

/// What is printed below the options is not wrapped well: it must fit by itself.
#[test]
fn texts_below_the_options_fit_into_a_terminal() {
    fn walk(command: &Command) {
        for text in [command.get_after_help(), command.get_before_help()].into_iter().flatten() {
            check(command.get_name(), &text.to_string());
        }
        command.get_subcommands().for_each(walk);
    }
    walk(&Cli::command());
}

#[test]
fn unknown_topics_are_refused_with_a_suggestion() {
    let ask = |words: &[&str]| {
        let topic = words.iter().map(|word| (*word).to_owned()).collect();
        help(&HelpArguments { topic }).expect_err("refused").to_string()
    };
    assert!(ask(&["device"]).contains("did you mean 'devices'?"));
    assert!(ask(&["lab", "replya"]).contains("did you mean 'replay'?"));
    assert!(ask(&["quantum"]).contains("run, "));
}
