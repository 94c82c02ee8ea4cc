use super::*;
use proptest::prelude::*;

fn tcp_uri(host: &str, port: u16, export: &str) -> Uri {
    Uri { address: Address::Tcp { host: host.into(), port }, export: export.into(), tls: None }
}

#[test]
fn what_the_specification_shows_is_understood() {
    for (text, expected) in [
        ("nbd://example.com", tcp_uri("example.com", PORT, "")),
        ("nbd://example.com:10810/", tcp_uri("example.com", 10810, "")),
        ("nbd://[::1]:7/a/b", tcp_uri("::1", 7, "a/b")),
        ("nbd://192.0.2.1/with%20blank%25", tcp_uri("192.0.2.1", PORT, "with blank%")),
    ] {
        assert_eq!(Uri::parse(text).as_ref(), Ok(&expected), "{text}");
    }
    let unix = Uri::parse("nbd+unix:///disk?socket=/run/a%20b").expect("valid");
    assert_eq!((unix.address, unix.export.as_str()), (Address::Unix("/run/a b".into()), "disk"));
    let tls = Uri::parse("nbds://host/?tls-certificates=/etc/pki&tls-hostname=other").expect("valid");
    let names = TlsNames { certificates: Some("/etc/pki".into()), hostname: Some("other".into()) };
    assert_eq!(tls.tls, Some(names));
}

#[test]
fn each_mistake_has_its_message() {
    for (text, expected) in [
        ("http://host/", UriError::Scheme),
        ("nbd:host", UriError::Scheme),
        ("nbd:///export", UriError::NoHost),
        ("nbd://[::1", UriError::NoHost),
        ("nbd://host:0/", UriError::Port("0".into())),
        ("nbd://host:70000/", UriError::Port("70000".into())),
        ("nbd://[::1]x/", UriError::Port("x".into())),
        ("nbd+unix:///x", UriError::NoSocket),
        ("nbd+unix:///x?socket=", UriError::NoSocket),
        ("nbd+unix://host/x?socket=/s", UriError::HostAndSocket),
        ("nbd://host/?socket=/s", UriError::HostAndSocket),
        ("nbd://host/%2", UriError::Percent),
        ("nbd://host/%zz", UriError::Percent),
        ("nbd://host/%ff", UriError::NotText),
        ("nbd://host/?tls-hostname=x", UriError::Parameter("tls-hostname".into())),
        ("nbds://host/?colour=red", UriError::Parameter("colour".into())),
        ("nbds+unix:///x?socket=/s", UriError::NoHostname),
    ] {
        assert_eq!(Uri::parse(text), Err(expected), "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(text in "(nbds?(\\+unix)?://)?[a-z\\[\\]:/?&=%0-9]{0,40}") {
        let _ = Uri::parse(&text);
    }
}
