use super::*;

const ALL: [Handover; 4] = [Handover::Kept, Handover::Offered, Handover::Taken, Handover::Returned];

#[test]
fn the_number_is_the_word() {
    assert_eq!(ALL.map(|word| Handover::from_bits(word.bits())), ALL);
    assert_eq!(Handover::default().bits(), 0);
}

#[test]
fn each_step_leads_from_one_owner_to_the_next_and_from_nowhere_else() {
    use Handover::*;
    assert_eq!(ALL.map(Handover::offer), [Some(Offered), None, None, None]);
    assert_eq!(ALL.map(Handover::take), [None, Some(Taken), None, None]);
    assert_eq!(ALL.map(Handover::decline), [None, Some(Returned), None, None]);
    assert_eq!(ALL.map(Handover::withdraw), [Some(Kept), Some(Kept), None, Some(Kept)]);
    for (rest, after) in [(Rest::Some, Offered), (Rest::None, Returned)] {
        assert_eq!(ALL.map(|word| word.put_down(rest)), [None, None, Some(after), None]);
    }
}
