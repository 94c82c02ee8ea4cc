use super::*;

const MOUNTS: &str = "22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/l,upperdir=/run/up,workdir=/w\n\
    30 22 259:1 / /var/tmp rw - ext4 /dev/vda rw\n";

#[test]
fn the_upper_directory_of_the_innermost_mount() {
    assert_eq!(upper_dir(MOUNTS, Path::new("/home/x")), Some(PathBuf::from("/run/up")));
    assert_eq!(upper_dir(MOUNTS, Path::new("/var/tmp/x")), None);
}

#[test]
fn memory_is_refused_and_says_what_to_do() {
    let error = create_swap_file(Path::new("/dev/shm")).unwrap_err();
    assert!(matches!(error, CreateError::InMemory { file_system: "tmpfs", .. }), "{error:?}");
    assert!(error.to_string().contains("ame a directory") || error.to_string().contains("name another"));
}

#[test]
fn a_missing_directory_says_what_to_do() {
    let error = create_swap_file(Path::new("/nonexistent/dir")).unwrap_err();
    assert!(matches!(error, CreateError::System { errno: Errno::NOENT, .. }), "{error:?}");
    assert!(error.to_string().contains("ame a directory") || error.to_string().contains("name another"));
}
