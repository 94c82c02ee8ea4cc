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

#[test]
fn what_is_shown_means_the_same_and_can_be_shown() {
    for (text, shown) in [
        ("nbd://host:10809", "nbd://host/"),
        ("nbd://host:7/a%20b%3fc%25/d", "nbd://host:7/a b%3Fc%25/d"),
        ("nbd://a%2fb%5D/%0a%1b[31m", "nbd://a%2Fb%5D/%0A%1B[31m"),
        ("nbd://[::1]/%c2%85\u{fc}", "nbd://[::1]/%C2%85\u{fc}"),
        ("nbd+unix:///x?socket=/run/a%26b%ff=c", "nbd+unix:///x?socket=/run/a%26b%FF=c"),
    ] {
        let uri = Uri::parse(text).expect("valid");
        assert_eq!(uri.to_string(), shown);
        assert_eq!(Uri::parse(shown), Ok(uri));
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(text in "(nbds?(\\+unix)?://)?[a-z\\[\\]:/?&=%0-9]{0,40}") {
        let _ = Uri::parse(&text);
    }
}
