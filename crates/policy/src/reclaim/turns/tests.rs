use super::*;

/// The pages of a batch.
const BATCH: u64 = 128;

const MS: u64 = 1_000_000;

/// Members that always want to give, each by its part of 1000 bytes. In a round each member looks
/// once, and gives a batch if its turn comes. Returns what each has given after so many rounds.
fn given_after(rounds: u64, parts: &[u64], stands_still: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut turns = vec![Turn::new(); parts.len()];
    let mut given = vec![0; parts.len()];
    for round in 0..rounds {
        for member in 0..parts.len() {
            let share = Share { own: parts[member], all: 1000 };
            let seen = Given { own: given[member], all: given.iter().sum() };
            if turns[member].comes(seen, share, 10 * MS + round * MS / 10) && !stands_still(member) {
                given[member] += BATCH;
            }
        }
    }
    given.iter().map(|pages| pages / BATCH).collect()
}

#[test]
fn each_gives_its_share_of_what_all_give() {
    assert_eq!(given_after(1000, &[500, 500], |_| false), [1000, 1000], "nobody waits for its equal");
    let given = given_after(1000, &[100, 900], |_| false);
    assert!(given[1] == 1000 && (100..120).contains(&given[0]), "{given:?}");
    let given = given_after(1000, &[100, 300, 600], |_| false);
    assert!(given[2] == 1000 && (160..180).contains(&given[0]), "{given:?}");
    assert!((500..520).contains(&given[1]), "{given:?}");
}

#[test]
fn where_the_others_give_nothing_it_is_anybodys_turn() {
    let given = given_after(1000, &[0, 1000], |member| member == 1);
    assert!(given[0] > 900, "{given:?}");
    assert_eq!(given_after(1000, &[1000], |_| false), [1000], "one member alone gives all");
}

#[test]
fn what_was_given_long_ago_does_not_count() {
    let mut turn = Turn::new();
    let share = |own| Share { own, all: 1000 };
    // What was given before the first look is nobody's lead, and nobody's debt.
    assert!(turn.comes(Given { own: 900 * BATCH, all: 1000 * BATCH }, share(100), MS));
    let given = |own: u64, all: u64| Given { own: (900 + own) * BATCH, all: (1000 + all) * BATCH };
    assert!(!turn.comes(given(100, 101), share(100), 2 * MS), "far ahead");
    // Of what the others give now all but a tenth is this member's part.
    assert!(!turn.comes(given(100, 101 + 6), share(900), 3 * MS));
    assert!(
        turn.comes(given(100, 101 + 7), share(900), 4 * MS),
        "six batches of the lead are forgotten by then"
    );
}

#[test]
fn who_ends_takes_nothing_of_what_is_known_along() {
    let mut turn = Turn::new();
    let share = Share { own: 100, all: 1000 };
    assert!(turn.comes(Given { own: 0, all: 1000 * BATCH }, share, MS));
    // The member that had given most has ended; of what is left nothing can be told apart.
    assert!(turn.comes(Given { own: 100 * BATCH, all: 200 * BATCH }, share, 2 * MS));
    assert!(!turn.comes(Given { own: 103 * BATCH, all: 204 * BATCH }, share, 3 * MS));
}

/// Other members can write any figure, and figures go back when a member ends.
#[test]
fn wrong_figures_are_no_worse_than_a_wrong_turn() {
    let wrong = [0, 1, 1000, u64::from(u32::MAX), i64::MAX as u64, i64::MIN as u64, u64::MAX];
    let mut turn = Turn::new();
    for own in wrong {
        for all in wrong {
            for part in wrong {
                let _ = turn.comes(Given { own, all }, Share { own: part, all: own }, all);
                let _ = turn.comes(Given { own: all, all: own }, Share { own, all: part }, part);
            }
        }
    }
}
