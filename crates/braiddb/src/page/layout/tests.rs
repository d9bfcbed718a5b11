//! Tests of pages: against a map, as images, and with concurrent readers and a writer.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::latch::Latch;
use crate::log::tests::format;
use crate::rid::TableId;

/// A key with its value and flags.
type Record = (Vec<u8>, (Vec<u8>, SlotFlags));
type Model = BTreeMap<Vec<u8>, (Vec<u8>, SlotFlags)>;

const TABLE: TableId = TableId(7);

fn words(page_bytes: usize) -> Vec<AtomicU64> {
    (0..page_bytes / WORD_BYTES).map(|_| AtomicU64::new(0xdead_beef)).collect()
}

fn leaf<'k>(page: u64, low: &'k [u8], high: Option<&'k [u8]>) -> PageFormat<'k> {
    PageFormat { level: 0, page, table: TABLE, low, high }
}

/// Pages in the order of their ranges, used as one map. Full pages are split, and some are merged.
struct Pages {
    page_bytes: usize,
    pages: Vec<Vec<AtomicU64>>,
    splits: u64,
    merges: u64,
}

impl Pages {
    fn new(page_bytes: usize) -> Self {
        let first = words(page_bytes);
        Page::new(&first).format(&leaf(0, &[], None));
        Self { page_bytes, pages: vec![first], splits: 0, merges: 0 }
    }

    fn at(&self, number: usize) -> Page<'_> {
        Page::new(&self.pages[number])
    }

    fn number_of(&self, key: &[u8]) -> usize {
        let number = (0..self.pages.len()).find(|number| self.at(*number).may_hold(key));
        number.expect("ranges leave no key out")
    }

    fn put(&mut self, key: &[u8], value: &[u8], flags: SlotFlags) {
        loop {
            let number = self.number_of(key);
            let page = self.at(number);
            let slot = page.find(key);
            if page.has_room(slot, key, value.len(), 0) {
                match slot {
                    KeySlot::At(place) => page.overwrite(place, value, flags),
                    KeySlot::Before(place) => page.insert(place, key, value, flags),
                }
                page.check();
                return;
            }
            let point =
                page.leaf_split_point(key, slot, page.slot_words(key, value.len()), &|_: &[u8]| 0);
            self.split(number, &point);
        }
    }

    fn split(&mut self, number: usize, point: &SplitPoint) {
        let page = self.at(number);
        let (low, high, count) = (page.low_fence(), page.high_fence(), page.count());
        let copy = page.copy();
        let right = words(self.page_bytes);
        let format = page.part(self.pages.len() as u64, &point.separator, high.as_deref());
        Page::new(&right).become_part(copy.page(), point.from..count, &format);
        let format = page.part(page.number(), &low, Some(&point.separator));
        page.become_part(copy.page(), 0..point.from, &format);
        page.check();
        Page::new(&right).check();
        self.pages.insert(number + 1, right);
        self.splits += 1;
    }

    fn try_merge(&mut self, number: usize) {
        if number + 1 < self.pages.len()
            && self.at(number).can_be_merged_with(self.at(number + 1), 0)
        {
            self.at(number).absorb(self.at(number + 1));
            self.at(number).check();
            self.pages.remove(number + 1);
            self.merges += 1;
        }
    }

    /// Returns all records in order.
    fn content(&self) -> Vec<Record> {
        let mut all = Vec::new();
        for page in (0..self.pages.len()).map(|number| self.at(number)) {
            for place in 0..page.count() {
                let mut value = Vec::new();
                page.copy_value(place, &mut value);
                assert_eq!(value.len(), page.value_bytes(place));
                all.push((page.key(place).to_vec(), (value, page.flags(place))));
            }
        }
        all
    }
}

/// Keys of at most 16 bytes, which fit on the smallest pages, with similar heads.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..2, 0..14),
        (0u64..600).prop_map(|n| n.to_be_bytes().to_vec()),
        (0usize..15, 0u8..4).prop_map(|(n, last)| [vec![7; n], vec![last]].concat()),
        (0usize..16).prop_map(|n| vec![0xff; n]),
        (0u32..500).prop_map(|n| format!("a prefix/{n}").into_bytes()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pages_behave_as_a_map(
        small in any::<bool>(),
        steps in prop::collection::vec((key(), 0usize..33, 0u8..8), 0..1200),
    ) {
        with_limit(PART_SECONDS, move |_| {
            let mut pages = Pages::new(if small { MIN_PAGE_BYTES } else { 4096 });
            let mut model = Model::new();
            for (number, (key, value_bytes, step)) in steps.into_iter().enumerate() {
                let page = pages.number_of(&key);
                let found = pages.at(page).find(&key);
                prop_assert_eq!(matches!(found, KeySlot::At(_)), model.contains_key(&key));
                match (step, found) {
                    (0 | 1, KeySlot::At(place)) => {
                        pages.at(page).remove(place);
                        pages.at(page).check();
                        model.remove(&key);
                    }
                    (2, KeySlot::At(place)) => {
                        pages.at(page).set_flags(place, SlotFlags::DELETED);
                        model.get_mut(&key).unwrap().1 = SlotFlags::DELETED;
                    }
                    (3, _) => pages.try_merge(page),
                    _ => {
                        let value = vec![number as u8; value_bytes];
                        pages.put(&key, &value, SlotFlags::VERSIONED);
                        model.insert(key, (value, SlotFlags::VERSIONED));
                    }
                }
            }
            prop_assert_eq!(pages.content(), model.into_iter().collect::<Vec<_>>());
            Ok::<_, TestCaseError>(())
        })?;
    }
}

/// Keys and values of maximum length, in any order: each split makes room.
#[test]
fn entries_of_any_size_find_room() {
    with_limit(PART_SECONDS, |_| {
        let mut random = fastrand::Rng::with_seed(3);
        for page_bytes in [MIN_PAGE_BYTES, 4096, 16 << 10, MAX_PAGE_BYTES] {
            let (max_key, max_value) =
                (max_key_bytes(page_bytes), max_inline_value_bytes(page_bytes));
            let (mut pages, mut model) = (Pages::new(page_bytes), Model::new());
            for number in 0..400_u32 {
                let mut key = vec![random.u8(0..3); random.usize(..max_key)];
                if random.bool() {
                    key = vec![5; max_key];
                    let end = key.len() - 4;
                    key[end..].copy_from_slice(&random.u32(..).to_be_bytes());
                }
                let value_bytes = if random.bool() { max_value } else { random.usize(..max_value) };
                let value = vec![number as u8; value_bytes];
                pages.put(&key, &value, SlotFlags::NONE);
                model.insert(key, (value, SlotFlags::NONE));
            }
            assert!(pages.splits > 10);
            assert_eq!(pages.content(), model.into_iter().collect::<Vec<_>>());
        }
    });
}

#[test]
fn merges_undo_splits() {
    with_limit(PART_SECONDS, |_| {
        let mut pages = Pages::new(MIN_PAGE_BYTES);
        let name = |number: u32| format!("a common key {number:03}").into_bytes();
        let name = |number: u32| name(number)[..16].to_vec();
        for number in 0..300 {
            pages.put(&name(number), &[1; 20], SlotFlags::NONE);
        }
        assert!(pages.splits > 20);
        for number in (0..300).filter(|number| number % 10 != 0) {
            let page = pages.number_of(&name(number));
            let KeySlot::At(place) = pages.at(page).find(&name(number)) else { panic!("{number}") };
            pages.at(page).remove(place);
        }
        let mut page = 0;
        while page + 1 < pages.pages.len() {
            let before = pages.merges;
            pages.try_merge(page);
            page += usize::from(before == pages.merges);
        }
        assert!(pages.merges * 2 > pages.splits, "{} of {}", pages.merges, pages.splits);
        let left: Vec<_> = pages.content().into_iter().map(|(key, _)| key).collect();
        assert_eq!(left, (0..300).step_by(10).map(name).collect::<Vec<_>>());
    });
}

#[test]
fn inner_pages_lead_every_key_to_its_child() {
    with_limit(PART_SECONDS, |_| {
        let pages = [words(4096), words(4096)];
        let [left, right] = [Page::new(&pages[0]), Page::new(&pages[1])];
        left.format(&PageFormat {
            level: 1,
            page: 1,
            table: TABLE,
            low: b"key/",
            high: Some(b"key0"),
        });
        let name = |number: usize| format!("key/{number:09}").into_bytes();
        left.insert_child(0, b"", 0);
        for number in 1..100 {
            let place = left.child_place(left.shape(), &KeySuffix::new(&name(number * 10), 3)) + 1;
            left.insert_child(place, &name(number * 10), number as u64);
        }
        let child_of = |page: Page<'_>, key: &[u8]| {
            let shape = page.shape();
            page.child(page.child_place(shape, &KeySuffix::new(key, shape.prefix_bytes)))
        };
        left.check();
        for number in 0..999 {
            assert_eq!(child_of(left, &name(number)), number as u64 / 10);
        }
        let point = left.inner_split_point(&name(400));
        let (copy, low, high) = (left.copy(), left.low_fence(), left.high_fence());
        right.become_part(
            copy.page(),
            point.from..100,
            &left.part(2, &point.separator, high.as_deref()),
        );
        left.become_part(copy.page(), 0..point.from, &left.part(1, &low, Some(&point.separator)));
        left.check();
        right.check();
        assert_eq!(left.count() + right.count(), 100);
        for number in 0..999 {
            let page = if right.may_hold(&name(number)) { right } else { left };
            assert!(page.may_hold(&name(number)));
            assert_eq!(child_of(page, &name(number)), number as u64 / 10);
        }
        assert!(!left.can_be_merged_with(right, 0) || left.count() + right.count() < 120);
        left.absorb(right);
        left.check();
        for number in 0..999 {
            assert_eq!(
                child_of(left, &name(number)),
                number as u64 / 10,
                "the separator came back"
            );
        }
    });
}

fn full_leaf() -> Vec<AtomicU64> {
    let words = words(4096);
    let page = Page::new(&words);
    page.format(&leaf(17, b"a", Some(b"c")));
    for number in 0..60_u8 {
        let key = [b'b', number, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        page.insert(number.into(), &key, &[number; 21], SlotFlags::VERSIONED);
    }
    page.remove(30);
    words
}

#[test]
fn an_image_is_the_page_without_what_is_deleted_or_only_in_memory() {
    with_limit(PART_SECONDS, |_| {
        let from = full_leaf();
        let from = Page::new(&from);
        let mut image = vec![0; 4096];
        from.write_image(&mut image);
        let to = PageCopy::zeros(4096);
        let to = to.page();
        to.read_image(&image, 17).unwrap();
        to.check();
        assert_eq!((to.table(), to.count()), (TABLE, 59));
        for place in 0..59 {
            assert_eq!(to.key(place), from.key(place));
            assert_eq!(to.flags(place), SlotFlags::NONE);
            let (mut value, mut expected) = (Vec::new(), Vec::new());
            to.copy_value(place, &mut value);
            from.copy_value(place, &mut expected);
            assert_eq!(value, expected);
        }
        let mut again = vec![1; 4096];
        to.write_image(&mut again);
        assert_eq!(image, again);
    });
}

#[test]
fn damage_of_an_image_is_told() {
    with_limit(PART_SECONDS, |_| {
        let from = full_leaf();
        let mut image = vec![0; 4096];
        Page::new(&from).write_image(&mut image);
        let read = |image: &[u8], number| PageCopy::zeros(4096).page().read_image(image, number);
        assert_eq!(read(&image, 17), Ok(()));
        assert_eq!(read(&image, 18), Err(PageDamage::AnotherPage { expected: 18, found: 17 }));
        for at in (0..4096).step_by(97) {
            let mut damaged = image.clone();
            damaged[at] ^= 4;
            assert!(matches!(read(&damaged, 17), Err(PageDamage::Checksum { .. })), "byte {at}");
        }
        // The image has a correct checksum but inconsistent contents.
        let told = |at: usize, byte: u8| {
            let mut wrong = image.clone();
            wrong[at] = byte;
            let checksum = crc32c::crc32c(&wrong[4..]);
            wrong[..4].copy_from_slice(&checksum.to_le_bytes());
            read(&wrong, 17)
        };
        assert_eq!(told(4, 9), Err(PageDamage::Kind));
        assert_eq!(told(7, 9), Err(PageDamage::Bounds));
        assert_eq!(told(21, 0), Err(PageDamage::Bounds));
        assert_eq!(told(136, 0xff), Err(PageDamage::Bounds));
    });
}

/// Sets bits of an entry's word according to the documentation.
fn documented_bits(values: &[(&str, u64)]) -> u64 {
    let mut word = 0;
    for (name, value) in values {
        let (first, bits) = format::bits("Entry of a page", name);
        assert!(value >> bits == 0, "{name} has {bits} bits");
        word |= value << first;
    }
    word
}

/// Builds an image from the documentation: the header's fields, entries with the bytes of their
/// heads and the bits of their words, and cells at the end.
fn documented_image(
    header: &[(&str, u64)],
    hints: &[&[u8; 4]],
    entries: &[(&[u8; 8], u64)],
    cells: &[u8],
) -> Vec<u8> {
    let mut image = vec![0; 4096];
    format::fill("Page", &mut image, header);
    let at = |chapter: &str, name: &str| {
        let fields = format::fields(chapter);
        fields.into_iter().find(|(field, _)| field.starts_with(name)).expect("a field").1
    };
    let (start, bytes) = at("Page", "hints");
    image[start..start + bytes].fill(0xff);
    for (hint, to) in hints.iter().zip(image[start..].chunks_exact_mut(4)) {
        to.copy_from_slice(&u32::from_be_bytes(**hint).to_le_bytes());
    }
    let mut end = at("Page", "the entries").0;
    for (head, word) in entries {
        let numbers = [("head", u64::from_be_bytes(**head)), ("word", *word)];
        format::fill("Entry of a page", &mut image[end..end + 16], &numbers);
        end += 16;
    }
    let cells_at = image.len() - cells.len();
    image[cells_at..].copy_from_slice(cells);
    let (start, bytes) = at("Page", "checksum");
    assert_eq!(start, 0);
    let checksum = crc32c::crc32c(&image[bytes..]);
    image[..bytes].copy_from_slice(&checksum.to_le_bytes());
    image
}

/// The bytes of a page are stable: later builds, and other programs that follow `docs/format.md`,
/// can read them.
#[test]
fn the_bytes_of_a_page_are_as_documented() {
    with_limit(PART_SECONDS, |_| {
        let copy = PageCopy::zeros(4096);
        let page = copy.page();
        page.format(&leaf(0x0102, b"aa", Some(b"ab")));
        page.set_bulk_epoch(77);
        page.insert(0, b"abc", b"gone", SlotFlags::NONE);
        page.remove(0);
        page.insert(0, b"aa", b"", SlotFlags::BULK_CREATED);
        page.insert(1, b"abcdefghijkl", b"value", SlotFlags::DELETED.with(SlotFlags::BULK_DELETED));
        let number = 0x0304_u64.to_le_bytes();
        let flags = SlotFlags::OVERFLOW.with(SlotFlags::VERSIONED);
        page.insert_cell(2, b"abd", (&number, 5_000), flags);
        let mut image = vec![0; 4096];
        page.write_image(&mut image);
        let header = [
            ("checksum", 0),
            ("kind", 1),
            ("level", 0),
            ("number of entries", 3),
            ("page id", 0x0102),
            ("table", TABLE.0.into()),
            ("lowest cell", 506),
            ("freed words", 1),
            ("not used", 0),
            ("epoch", 77),
            ("low fence", 511 | 2 << 16),
            ("high fence", 510 | 2 << 16),
            ("prefix", 1),
            ("reserved", 0),
            ("hints", 0),
        ];
        let key = |bytes| ("bytes of the whole key", bytes);
        let value = |bytes| ("in a leaf, bytes of the value", bytes);
        let cell = |word| ("the word at which", word);
        let entries: [(&[u8; 8], u64); 3] = [
            (
                b"a\0\0\0\0\0\0\0",
                documented_bits(&[key(2), ("in a leaf, a bulk operation made", 1)]),
            ),
            (
                b"bcdefghi",
                documented_bits(&[
                    cell(507),
                    key(12),
                    value(5),
                    ("in a leaf, the record is deleted", 1),
                    ("in a leaf, a bulk operation deleted", 1),
                ]),
            ),
            (
                b"bd\0\0\0\0\0\0",
                documented_bits(&[
                    cell(506),
                    key(3),
                    value(5_000),
                    ("in a leaf, the value lies elsewhere", 1),
                ]),
            ),
        ];
        let cells =
            b"\x04\x03\0\0\0\0\0\0jkl\0\0\0\0\0value\0\0\0gone\0\0\0\0ab\0\0\0\0\0\0aa\0\0\0\0\0\0";
        let hints: [&[u8; 4]; 3] = [b"a\0\0\0", b"bcde", b"bd\0\0"];
        assert_eq!(image, documented_image(&header, &hints, &entries, cells));
    });
}

#[test]
fn the_bytes_of_an_inner_page_are_as_documented() {
    with_limit(PART_SECONDS, |_| {
        let copy = PageCopy::zeros(4096);
        let page = copy.page();
        page.format(&PageFormat { level: 1, page: 9, table: TABLE, low: b"", high: None });
        // Enough entries that each hint but the last covers two of them.
        page.insert_child(0, b"", 1 << 30);
        for number in 1..18 {
            page.insert_child(number, &[b'k', number as u8], number as u64);
        }
        page.insert_child(18, b"long separator", 18);
        let mut image = vec![0; 4096];
        page.write_image(&mut image);
        let header = [
            ("checksum", 0),
            ("kind", 2),
            ("level", 1),
            ("number of entries", 19),
            ("page id", 9),
            ("table", TABLE.0.into()),
            ("lowest cell", 510),
            ("freed words", 0),
            ("not used", 0),
            ("epoch", 0),
            ("low fence", 511),
            ("high fence", 0),
            ("prefix", 0),
            ("reserved", 0),
            ("hints", 0),
        ];
        let heads: Vec<[u8; 8]> = (0..19)
            .map(|number| match number {
                0 => [0; 8],
                18 => *b"long sep",
                _ => [b'k', number, 0, 0, 0, 0, 0, 0],
            })
            .collect();
        let word = |number: u64| match number {
            0 => documented_bits(&[("in an inner page", 1 << 30)]),
            18 => documented_bits(&[
                ("the word at which", 510),
                ("bytes of the whole key", 14),
                ("in an inner page", 18),
            ]),
            _ => documented_bits(&[("bytes of the whole key", 2), ("in an inner page", number)]),
        };
        let entries: Vec<_> = heads.iter().zip((0..19).map(word)).collect();
        let hints: Vec<&[u8; 4]> =
            heads.iter().step_by(2).map(|head| head.first_chunk().unwrap()).collect();
        let cells = b"arator\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(image, documented_image(&header, &hints, &entries, cells));
    });
}

/// Readers run concurrently with a writer that inserts, overwrites, removes and compacts cells. A
/// validated read returns one complete record.
#[test]
fn a_reader_beside_a_writer_sees_whole_records() {
    with_limit(PART_SECONDS, |_| {
        let (words, latch, over) = (words(4096), Latch::new(), AtomicBool::new(false));
        let page = Page::new(&words);
        page.format(&leaf(1, b"k", Some(b"l")));
        let name = |number: u8| [vec![b'k'; 1 + usize::from(number % 13)], vec![number]].concat();
        std::thread::scope(|scope| {
            let (words, latch, over) = (&words, &latch, &over);
            let readers = (0..2).map(|thread| {
                scope.spawn(move || {
                    let page = Page::new(words);
                    // The records that remain after the writer has ended suffice.
                    let (mut random, mut found) = (fastrand::Rng::with_seed(thread), 0);
                    while !over.load(Ordering::Relaxed) || found < 100 {
                        let number = random.u8(0..30);
                        let (Ok(version), mut value) = (latch.version(), Vec::new()) else {
                            continue;
                        };
                        let slot = page.find(&name(number));
                        if let KeySlot::At(place) = slot {
                            page.copy_value(place, &mut value);
                        }
                        if latch.validate(version).is_err() {
                            continue;
                        }
                        if let KeySlot::At(_) = slot {
                            found += 1;
                            let bytes = u8::try_from(value.len()).unwrap();
                            assert!(value.iter().all(|byte| *byte == number ^ bytes), "{value:?}");
                        }
                    }
                })
            });
            let readers: Vec<_> = readers.collect();
            let mut random = fastrand::Rng::with_seed(9);
            for round in 0..if cfg!(debug_assertions) { 30_000 } else { 300_000 } {
                let number = random.u8(0..30);
                let bytes = random.u8(0..90);
                let value = vec![number ^ bytes; bytes.into()];
                let version = latch.version().unwrap();
                let mut latched = latch.acquire(version).unwrap();
                latched.changed();
                match page.find(&name(number)) {
                    KeySlot::At(place) if random.u8(0..3) == 0 => page.remove(place),
                    KeySlot::At(place) => page.overwrite(place, &value, SlotFlags::NONE),
                    KeySlot::Before(place) => {
                        page.insert(place, &name(number), &value, SlotFlags::NONE)
                    }
                }
                if round % 1000 == 0 {
                    page.check();
                }
            }
            over.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    });
}
