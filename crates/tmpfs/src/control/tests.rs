use super::*;

#[test]
fn what_is_told_is_understood() {
    for told in [
        Swapoff::Running,
        Swapoff::Done { pages: 17, lost: 2 },
        Swapoff::Failed("failed is no word of it".to_owned()),
    ] {
        assert_eq!(told.to_string().parse(), Ok(told));
    }
    for text in ["", "done", "done 1", "done one two", "else"] {
        assert_eq!(text.parse::<Swapoff>(), Err(UnknownState), "{text}");
    }
}
