use super::*;

#[test]
fn a_mount_that_does_not_answer_is_asked_once() {
    let directory = Path::new("/nowhere");
    let (answer, question) = mpsc::channel::<()>();
    let hangs = move || question.recv();
    assert!(within_patience(directory, hangs).is_none(), "it takes too long");
    assert!(within_patience(directory, || 7).is_none(), "the first question is still there");
    assert_eq!(within_patience(Path::new("/elsewhere"), || 7), Some(7));
    answer.send(()).expect("it still waits");
    while unanswered().contains(directory) {
        thread::yield_now();
    }
    assert_eq!(within_patience(directory, || 7), Some(7), "it answers again");
}
