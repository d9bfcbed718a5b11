//! `#[derive(Key)]` without the name for the catalog, and on types that cannot be keys.

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
