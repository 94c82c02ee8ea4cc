use super::*;

#[test]
fn slots_are_counted_once_however_often_they_are_written() {
    let [first, second] = [0, 1].map(|number| DeviceId::new(number).unwrap());
    let wear = Wear::new([(first, 1000), (second, 600)]);
    let write = |device, offset, slots| wear.write(SwapEntry::new(device, offset).unwrap(), slots);
    write(first, 1, 1);
    write(first, 1, 1);
    assert_eq!(wear.slots_ever_written(), 1);
    write(first, 999, 1);
    write(second, 1, 1);
    assert_eq!(wear.slots_ever_written(), 3, "the last of one device is not the first of the other");
    write(first, 512, 480);
    write(first, 512, 16);
    assert_eq!(wear.slots_ever_written(), 3 + 480);
    write(second, 60, 8);
    write(second, 64, 64);
    assert_eq!(wear.slots_ever_written(), 483 + 4 + 64, "over the border of a word");
    write(second, 0x40, 512);
    assert_eq!(wear.slots_ever_written(), 483 + 4 + 512);
    assert_eq!(wear.clusters_discarded(), 0);
    wear.discard_cluster();
    assert_eq!(wear.clusters_discarded(), 1);
}
