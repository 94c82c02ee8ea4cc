use super::*;

#[test]
fn a_description_comes_back_as_it_was_without_what_commands_a_terminal() {
    let command = ["/usr/bin/python3", "-c", "print(1)\nprint('\x1b[31m')"].map(OsString::from);
    let description = Description::new(None, &command).with_weight(400);
    assert_eq!(description.name, "python3");
    let back = Description::of_text(&description.to_text().expect("a text")).expect("a description");
    assert_eq!(back.command, "/usr/bin/python3 -c print(1) print('[31m')");
    assert_eq!((back.name, back.started_unix), (description.name, description.started_unix));
    assert_eq!(back.weight, 400);
    for (wrong, weight) in [(0, 1), (u32::MAX, WEIGHT_MAX)] {
        let text = Description::new(None, &command).with_weight(wrong).to_text().expect("a text");
        assert_eq!(Description::of_text(&text).expect("a description").weight, weight);
    }
    let earlier = wire::text(br#"{"name": "a", "command": "b", "started_unix": 7}"#).expect("a text");
    assert_eq!(Description::of_text(&earlier).expect("a description").weight, WEIGHT_DEFAULT);
    let other = wire::text(b"{\"name\": 7}").expect("a text");
    assert_eq!(Description::of_text(&other), Err(Errno::PROTO));
}

#[test]
fn names_are_words_that_are_no_process_ids() {
    for good in ["train", "train-7", "0a", "a.b_c"] {
        assert_eq!(parse_name(good), Ok(good.to_owned()));
    }
    for bad in ["", "-a", ".a", "a b", "a/b", "ä", "a\n", &"a".repeat(65)] {
        assert_eq!(parse_name(bad), Err(NameError::Characters), "{bad:?}");
    }
    assert_eq!(parse_name("4711"), Err(NameError::Digits("4711".into())));
}
