//! `#[derive(Key)]` without the name that the catalog is to know it by, and on what is no key.

use braiddb::Key;

#[derive(Key)]
enum Job {
    Urgent,
    Normal,
}

#[derive(Key)]
#[key(name = "shop.nothing")]
enum Nothing {}

#[derive(Key)]
#[key(name = "shop.order", version = 2)]
struct Order {
    number: u64,
}

#[derive(Key)]
#[key(name = "shop.visit")]
struct Visit<'a> {
    page: &'a str,
}

fn main() {}
