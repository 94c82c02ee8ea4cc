//! Page contents with a known compressibility that can be verified from the page's number alone.

/// Bytes of a page.
pub use folioswap_devices::PAGE_SIZE as PAGE;

/// The kind of data that a page is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// LZ4 halves it, in many short matches as in ordinary data.
    Two,
    /// LZ4 leaves a third.
    Three,
    /// Random bytes.
    Incompressible,
    /// All zero. Pages of this kind cannot be told apart, and need not be.
    Zero,
    /// One 64-bit word repeated, another one in each page.
    Same,
    /// Only the first word is written, as a first-touch test does.
    Stamp,
    /// The other kinds in turn, by page number.
    Mixed,
}

impl Kind {
    /// Parses the name that the programs take as an argument.
    ///
    /// # Errors
    /// The unknown name.
    pub fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "2" => Kind::Two,
            "3" => Kind::Three,
            "random" => Kind::Incompressible,
            "zero" => Kind::Zero,
            "same" => Kind::Same,
            "stamp" => Kind::Stamp,
            "mixed" => Kind::Mixed,
            _ => return Err(format!("unknown kind of data: {name}")),
        })
    }

    /// The name that [`parse`](Self::parse) takes.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Two => "2",
            Kind::Three => "3",
            Kind::Incompressible => "random",
            Kind::Zero => "zero",
            Kind::Same => "same",
            Kind::Stamp => "stamp",
            Kind::Mixed => "mixed",
        }
    }

    /// The name in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Kind::Two => "2:1",
            Kind::Three => "3:1",
            Kind::Incompressible => "incompressible",
            Kind::Zero => "zero",
            Kind::Same => "same-filled",
            Kind::Stamp => "stamped",
            Kind::Mixed => "mixed",
        }
    }

    fn of(self, page: u64) -> Self {
        if self != Kind::Mixed {
            return self;
        }
        [Kind::Two, Kind::Three, Kind::Incompressible, Kind::Same, Kind::Zero, Kind::Two, Kind::Stamp]
            [(page % 7) as usize]
    }
}

/// A pseudo-random sequence (wyrand), cheap enough that a page is made at the speed of memory.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins the sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c908)
    }
    /// The next number.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = (self.0 as u128).wrapping_mul((self.0 ^ 0xe703_7ed1_a0b4_28db) as u128);
        (product >> 64) as u64 ^ product as u64
    }
    /// A number below `n`.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next() as u128 * n as u128) >> 64) as u64
    }
}

/// The first word of a page, different for each page, seed and version.
#[inline]
pub const fn stamp(seed: u64, version: u64, page: u64) -> u64 {
    let mut random = Random::new(seed ^ version.rotate_left(48) ^ page.rotate_left(16));
    random.next() | 1
}

const PHRASE: &[u8; 40] = b" of the folio, its slots and its cluster";

/// Writes the content of page number `page` in `version` into `out`. A page of kind `Stamp` keeps
/// its bytes behind the first word.
///
/// # Panics
/// `out` is not one page.
pub fn fill(out: &mut [u8], kind: Kind, seed: u64, version: u64, page: u64) {
    assert_eq!(out.len(), PAGE);
    let first = stamp(seed, version, page);
    let mut random = Random::new(first);
    match kind.of(page) {
        Kind::Two => units::<32>(out, first, &mut random),
        Kind::Three => units::<48>(out, first, &mut random),
        Kind::Incompressible => {
            for word in out.chunks_exact_mut(8) {
                word.copy_from_slice(&random.next().to_ne_bytes());
            }
            out[..8].copy_from_slice(&first.to_ne_bytes());
        }
        Kind::Zero => out.fill(0),
        Kind::Same => {
            for word in out.chunks_exact_mut(8) {
                word.copy_from_slice(&first.to_ne_bytes());
            }
        }
        Kind::Stamp => out[..8].copy_from_slice(&first.to_ne_bytes()),
        Kind::Mixed => unreachable!("resolved above"),
    }
}

/// Fills the page with units of `UNIT` bytes: 12 random bytes, the rest constant. LZ4 stores each
/// unit in 16 bytes.
fn units<const UNIT: usize>(out: &mut [u8], first: u64, random: &mut Random) {
    let (units, rest) = out.as_chunks_mut::<UNIT>();
    for unit in units {
        let (a, b) = (random.next(), random.next());
        unit[..8].copy_from_slice(&a.to_ne_bytes());
        unit[8..12].copy_from_slice(&(b as u32).to_ne_bytes());
        unit[12..].copy_from_slice(&PHRASE[..UNIT - 12]);
    }
    rest.fill(0);
    out[..8].copy_from_slice(&first.to_ne_bytes());
}

/// The first word that page number `page` must have.
pub fn first_word(kind: Kind, seed: u64, version: u64, page: u64) -> u64 {
    if kind.of(page) == Kind::Zero { 0 } else { stamp(seed, version, page) }
}

/// Checks `word`, the first word of a page as its reader has seen it. The whole page is checked
/// only when `word` is wrong.
///
/// # Errors
/// As [`check`].
#[inline]
pub fn check_first(
    word: u64,
    got: &[u8],
    kind: Kind,
    seed: u64,
    version: u64,
    page: u64,
) -> Result<(), String> {
    if word == first_word(kind, seed, version, page) {
        return Ok(());
    }
    check(got, kind, seed, version, page)?;
    Err(format!(
        "page {page} (kind {kind:?}, version {version}): its first word was read as {word:#018x}, and is right now"
    ))
}

/// Sums up all words of a page, and so reads all of it, as a program would.
#[inline]
pub fn sum(page: &[u8]) -> u64 {
    let (words, _) = page.as_chunks::<8>();
    words.iter().fold(0, |sum, &word| sum.wrapping_add(u64::from_ne_bytes(word)))
}

/// Checks a whole page.
///
/// # Errors
/// The message says which byte differs and what the page looks like: zeroes, another page's
/// content, or damage.
pub fn check(got: &[u8], kind: Kind, seed: u64, version: u64, page: u64) -> Result<(), String> {
    let mut expected = [0u8; PAGE];
    fill(&mut expected, kind, seed, version, page);
    if got == expected {
        return Ok(());
    }
    let at = got.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(0);
    let differing = got.iter().zip(&expected).filter(|(a, b)| a != b).count();
    let looks = if got.iter().all(|&byte| byte == 0) {
        "is all zero".to_owned()
    } else {
        let word = u64::from_ne_bytes(got[..8].try_into().expect("8 bytes"));
        // Nearby pages and versions are tried, so that a mix-up of pages is named.
        let other = (0..=version + 1)
            .flat_map(|v| (page.saturating_sub(2048)..page + 2048).map(move |p| (v, p)))
            .find(|&(v, p)| first_word(kind, seed, v, p) == word && word != 0);
        match other {
            Some((v, p)) if (v, p) != (version, page) => {
                format!("begins like page {p} in version {v}")
            }
            _ => format!("begins with {word:#018x}"),
        }
    };
    Err(format!(
        "page {page} (kind {kind:?}, version {version}): {differing} bytes differ, the first at {at}; it {looks}"
    ))
}

#[cfg(test)]
mod tests;
