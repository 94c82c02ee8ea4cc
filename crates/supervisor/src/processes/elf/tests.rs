use super::*;

#[test]
fn our_own_image_is_dynamic() {
    let file = File::open("/proc/self/exe").expect("readable");
    let image = inspect(&file).expect("inspected");
    assert!(matches!(image, Image::Dynamic { interpreter } if interpreter.contains("ld-linux")));
}
