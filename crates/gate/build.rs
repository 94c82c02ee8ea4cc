//! Turns `syscalls.txt` into tables without pointers: an image that has them needs no relocation.

use std::fmt::Write;

/// As in `src/entry.rs`.
const NUMBERS: usize = 512;

fn main() {
    println!("cargo::rerun-if-changed=syscalls.txt");
    let text = std::fs::read_to_string("syscalls.txt").expect("syscalls.txt is beside build.rs");
    let mut operands = String::new();
    let mut count = 0;
    let mut lines = vec![None; NUMBERS];
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let mut words = line.split_whitespace();
        let number: usize = words.next().and_then(|word| word.parse().ok()).expect(line);
        words.next().expect(line);
        let mut marks = 1;
        let first = count;
        for word in words {
            if word == "again" {
                marks |= 2;
                continue;
            }
            writeln!(operands, "    {},", operand(word, line)).expect("a string takes it");
            count += 1;
        }
        assert!(lines[number].is_none(), "twice: {line}");
        lines[number] = Some((first, count - first, marks));
    }
    let mut table = format!(
        "static OPERANDS: [Operand; {count}] = [\n{operands}];\nstatic LINES: [Line; {NUMBERS}] = [\n"
    );
    for line in lines {
        let (first, count, marks) = line.unwrap_or((0, 0, 0));
        writeln!(table, "    Line {{ first: {first}, count: {count}, marks: {marks} }},")
            .expect("a string takes it");
    }
    table.push_str("];\n");
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(format!("{out}/table.rs"), table).expect("OUT_DIR is writable");
}

/// `argument:direction:size` as an expression.
fn operand(word: &str, line: &str) -> String {
    let parts: Vec<&str> = word.split(':').collect();
    let [argument, direction, size] = parts[..] else { panic!("{word}: {line}") };
    let argument: u8 = argument.parse().expect(line);
    assert!(argument < 6, "{line}");
    let access = match direction {
        "r" => "Read",
        "w" => "Write",
        "rw" => "Both",
        _ => panic!("{direction}: {line}"),
    };
    format!("Operand {{ argument: {argument}, access: Access::{access}, size: {} }}", self::size(size, line))
}

fn size(text: &str, line: &str) -> String {
    let number = |text: &str| text.parse::<u16>().unwrap_or_else(|_| panic!("{text}: {line}"));
    if let Some((count, bytes)) = text.split_once('*') {
        return format!("Size::Times {{ count: {}, bytes: {} }}", number(count), number(bytes));
    }
    if text.as_bytes()[0].is_ascii_digit() {
        return format!("Size::Bytes({})", number(text));
    }
    let digits = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let (name, of) = text.split_at(digits);
    match (name, of) {
        ("len", of) => {
            let (of, more) = of.split_once('+').unwrap_or((of, "0"));
            format!("Size::Length {{ of: {}, more: {} }}", number(of), number(more))
        }
        ("iov", of) => format!("Size::Vectors({})", number(of)),
        ("mmsg", of) => format!("Size::Messages({})", number(of)),
        ("bits", of) => format!("Size::Bits {{ of: {}, less: 0 }}", number(of)),
        ("nodes", of) => format!("Size::Bits {{ of: {}, less: 1 }}", number(of)),
        ("pages", of) => format!("Size::Pages({})", number(of)),
        ("sock", of) => format!("Size::Pointed({})", number(of)),
        ("instruct", of) => format!("Size::Inside({})", number(of)),
        ("str", "") => "Size::Text".into(),
        ("string-or-page", "") => "Size::TextOrPage".into(),
        ("argv", "") => "Size::Texts".into(),
        ("msg", "") => "Size::Message".into(),
        ("clone", "3") => "Size::Clone3".into(),
        ("sigset", "") => "Size::Mask".into(),
        ("ioctl", "") => "Size::Ioctl".into(),
        ("fcntl", "") => "Size::Fcntl".into(),
        ("prctl", "") => "Size::Prctl".into(),
        ("futex", "") => "Size::Futex".into(),
        ("arch", "") => "Size::Arch".into(),
        ("all", "") => "Size::Unknown".into(),
        _ => panic!("{text}: {line}"),
    }
}
