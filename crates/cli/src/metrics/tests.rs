use super::*;

#[test]
fn an_address_has_a_port_and_a_file_has_not() {
    for address in ["127.0.0.1:9709", "[::1]:80", "localhost:0", ":9709"] {
        assert!(is_address(address), "{address}");
    }
    for file in ["a.prom", "/var/lib/a:80", "./x:9709", "c:d", "a:99999", "a:"] {
        assert!(!is_address(file), "{file}");
    }
}
