//! Metrics over HTTP/1.1: one request a connection, one connection after the other, each with a
//! bound on time and size. A scraper asks every few seconds, so nothing more is needed.

use super::MetricsError;
use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

/// How long a client may take for its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of a request that are read: its first line is enough.
const REQUEST_MAX: usize = 8 << 10;
/// The type that scrapers know.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the process is ended.
///
/// # Errors
/// The address cannot be had.
pub fn serve(address: &str) -> Result<(), MetricsError> {
    let failed = |source| MetricsError::Address { address: address.to_owned(), source };
    // A colon alone in front of the port means this machine and nobody else.
    let bound = if address.starts_with(':') { format!("127.0.0.1{address}") } else { address.to_owned() };
    let listener = TcpListener::bind(bound).map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    eprintln!("folioswap: metrics at http://{local}/metrics");
    for client in listener.incoming() {
        // A client that goes away, or sends what is no request, is its own loss.
        let _ = client.and_then(answer);
    }
    Ok(())
}

fn answer(mut client: TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let request = request(&mut client)?;
    let mut words = request.split(|byte| byte.is_ascii_whitespace());
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, kind, text) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", TYPE, super::text()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "text/plain", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET is known\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    client.write_all(head.as_bytes())?;
    if method != b"HEAD" {
        client.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// The request, to the blank line after its head.
fn request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE
        && request.len() < REQUEST_MAX
        && !request.windows(4).any(|end| end == b"\r\n\r\n")
    {
        match client.read(&mut bytes)? {
            0 => break,
            count => request.extend_from_slice(&bytes[..count]),
        }
    }
    Ok(request)
}
