use super::*;

#[test]
fn many_regions_are_found_and_forgotten() {
    let engine = Engine::create_embedded().expect("memory");
    let found =
        |address| chunks().flat_map(|chunk| &chunk.entries).find_map(|entry| entry.engine_of(address));
    let start = |number: usize| (number + 1) << 30;
    let range = |number| start(number)..start(number) + 4096;
    let add = |number| Registration::new(range(number).start, range(number).end, engine);
    let all: Vec<_> = (0..3 * ENTRIES_PER_CHUNK).map(add).collect();
    for (number, registration) in all.into_iter().enumerate() {
        assert!(found(start(number)).is_some() && found(start(number) + 4095).is_some());
        assert!(found(start(number) + 4096).is_none() && found(start(number) - 1).is_none());
        drop(registration);
        assert!(found(start(number)).is_none());
    }
    let used = chunks().count();
    drop(add(1));
    assert_eq!(chunks().count(), used, "entries are used again");
}
