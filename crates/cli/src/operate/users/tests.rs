use super::*;

#[test]
fn a_user_without_a_name_is_a_number() {
    let passwd = "root:x:0:0::/root:/bin/sh\n:x:7:7::/:\nann:x:1000:1000::/home/ann:/bin/sh\n";
    assert_eq!([0, 1000, 7, 42].map(|id| named(passwd, id)), ["root", "ann", "7", "42"]);
}
