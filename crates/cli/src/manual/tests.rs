use super::*;

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn each_topic_has_a_page() {
    let directory = std::env::temp_dir().join(format!("folioswap-manual-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let written = topics(&directory);
    let page = std::fs::read_to_string(directory.join("folioswap-devices.7")).expect("a page");
    std::fs::remove_dir_all(&directory).expect("removed");
    written.expect("written");
    assert!(page.contains("folioswap\\-devices") && page.contains("encrypt=yes"), "{page}");
}
