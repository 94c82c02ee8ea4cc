use super::*;

/// A reader that returns at most so many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = self.1.min(self.0.len()).min(out.len());
        out[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

#[test]
fn a_checksum_depends_on_the_bytes_alone() {
    let mut text = Vec::new();
    write_lines(&mut text, 3000).unwrap();
    assert_eq!(text.len() as u64, 3000 * LINE);
    let sums: Vec<_> = [1000, 4096, 1 << 20].map(|size| checksum(Pieces(&text, size)).unwrap()).into();
    assert_eq!(sums[0].1, 3000 * LINE);
    assert!(sums.windows(2).all(|two| two[0] == two[1]), "{sums:?}");
    text.swap(70_000, 70_001);
    assert_ne!(checksum(&text[..]).unwrap(), sums[0]);
}

#[test]
fn the_text_is_sorted_right_and_a_failure_is_told() {
    let text = Text::new(20_000).unwrap();
    let mut options = Options { input: text.path(), parallel: 2, buffer: 16 << 20 };
    let timing = sort(&options).unwrap();
    let mut lines = Vec::new();
    write_lines(&mut lines, 20_000).unwrap();
    let mut sorted: Vec<&[u8]> = lines.chunks_exact(LINE as usize).collect();
    assert!(!sorted.is_sorted());
    sorted.sort_unstable();
    let (wanted, _) = checksum(&sorted.concat()[..]).unwrap();
    assert_eq!(timing.output, Some(format!("{wanted:016x}")));
    options.input = "/nonexistent".into();
    assert!(matches!(sort(&options), Err(SortError::Failed(2))));
    assert!(!is_installed("no-such-program-as-this"));
}
