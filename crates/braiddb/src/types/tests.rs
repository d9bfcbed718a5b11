//! Encodings preserve order, decode to the original value, and reject arbitrary bytes without a
//! panic.

use std::cmp::Reverse;
use std::fmt::Debug;

use proptest::prelude::*;

use super::*;

fn encode<K: Key + ?Sized>(key: &K) -> KeyBuffer {
    let mut buffer = KeyBuffer::new();
    key.encode(&mut buffer);
    buffer
}

/// Two keys compare like their encodings, and decode to themselves.
fn check<K: Key<Owned = K> + Ord + Debug>(a: &K, b: &K) {
    let (left, right) = (encode(a), encode(b));
    assert_eq!(a.cmp(b), left[..].cmp(&right[..]), "{a:?} {b:?}");
    assert_eq!(&K::decode(&left).unwrap(), a);
    let mut part = KeyBuffer::new();
    a.encode_part(&mut part);
    part.extend_from_slice(b"the rest");
    assert_eq!(K::decode_part(&part).unwrap(), (K::decode(&left).unwrap(), &b"the rest"[..]));
}

fn garbage<K: Key + ?Sized>(bytes: &[u8]) {
    _ = K::decode(bytes);
    _ = K::decode_part(bytes);
}

fn stored_alike<B: TableKey>(borrowed: &B, stored: &B::Stored)
where
    B::Stored: Sized,
{
    let (mut whole, mut part) = (KeyBuffer::new(), KeyBuffer::new());
    borrowed.encode_key(&mut whole);
    borrowed.encode_key_part(&mut part);
    assert_eq!(whole, encode(stored));
    let mut stored_part = KeyBuffer::new();
    stored.encode_part(&mut stored_part);
    assert_eq!(part, stored_part);
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()], 0..6)
}

proptest! {
    #[test]
    fn keys_keep_order_and_come_back(
        a in any::<(u8, u16, u32, u64, u128)>(), b in any::<(u8, u16, u32, u64, u128)>(),
        c in any::<(i8, i16, i32, i64, i128)>(), d in any::<(i8, i16, i32, i64, i128)>(),
        e in (bytes(), ".{0,3}", any::<Option<bool>>()), f in (bytes(), ".{0,3}", any::<Option<bool>>()),
    ) {
        check(&a, &b);
        check(&c, &d);
        check(&(a.3,), &(b.3,));
        check(&(c.0, c.1), &(c.0, d.1));
        check(&e, &f);
        check(&(e.0.clone(), f.0.clone()), &(f.0.clone(), e.0.clone()));
        check(&(Some(e.0.clone()), e.2), &(None, f.2));
        check(&[a.0, b.0], &[b.0, a.0]);
        check(&((e.0.clone(), 1u8), e.1.clone()), &((f.0.clone(), 1u8), f.1.clone()));
    }

    #[test]
    fn floats_keep_the_total_order_and_come_back(a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        let order = |left: &[u8], right: &[u8]| left.cmp(right);
        assert_eq!(a.total_cmp(&b), order(&encode(&a), &encode(&b)), "{a} {b}");
        assert_eq!(<f64 as Key>::decode(&encode(&a)).unwrap().to_bits(), a.to_bits());
        let (a, b) = (f32::from_bits(a.to_bits() as u32), f32::from_bits(b.to_bits() as u32));
        assert_eq!(a.total_cmp(&b), order(&encode(&a), &encode(&b)), "{a} {b}");
        assert_eq!(<f32 as Key>::decode(&encode(&a)).unwrap().to_bits(), a.to_bits());
    }

    #[test]
    fn reversed_keys_descend(
        a in (bytes(), any::<i32>(), any::<Option<u8>>()), b in (bytes(), any::<i32>(), any::<Option<u8>>()),
    ) {
        check(&Reverse(a.0.clone()), &Reverse(b.0.clone()));
        check(&Reverse(a.clone()), &Reverse(b.clone()));
        check(&(Reverse(a.0.clone()), a.1), &(Reverse(b.0.clone()), b.1));
        check(&(a.1, Reverse(a.2)), &(a.1, Reverse(b.2)));
        check(&Reverse(Reverse(a.0)), &Reverse(Reverse(b.0)));
    }

    /// A key starts with a prefix if and only if its encoding starts with the encoded prefix.
    #[test]
    fn prefixes_of_keys_are_those_of_their_encodings(
        a in (bytes(), any::<Option<u8>>(), bytes()), b in (bytes(), any::<Option<u8>>(), bytes()), start in bytes(),
    ) {
        let begins = |key: &[u8], prefix: KeyBuffer| key.starts_with(&prefix);
        let mut out = KeyBuffer::new();
        <(Vec<u8>, Option<u8>, Vec<u8>)>::encode_prefix(&(b.0.clone(),), &mut out);
        assert_eq!(begins(&encode(&a), out), a.0 == b.0);
        let mut out = KeyBuffer::new();
        <(Vec<u8>, Option<u8>, Vec<u8>)>::encode_prefix(&(b.0.clone(), b.1), &mut out);
        assert_eq!(begins(&encode(&a), out), (&a.0, a.1) == (&b.0, b.1));
        let mut out = KeyBuffer::new();
        <[u8]>::encode_prefix(&start, &mut out);
        assert_eq!(begins(&encode(&a.0), out), a.0.starts_with(&start));
        let (mut out, mut part) = (KeyBuffer::new(), KeyBuffer::new());
        Vec::encode_part_prefix(&start, &mut out);
        a.0.encode_part(&mut part);
        assert_eq!(begins(&part, out), a.0.starts_with(&start));
    }

    /// Tuples with borrowed parts have the same encoding as tuples with owned parts, in every
    /// place.
    #[test]
    fn borrowed_tuples_are_those_that_are_stored(a in bytes(), b in ".{0,3}", c in any::<i16>(), d in bytes()) {
        let (a, b, d) = (&*a, &*b, &*d);
        stored_alike(&(a,), &(a.to_vec(),));
        stored_alike(&(b, c), &(b.to_owned(), c));
        stored_alike(&(c, b), &(c, b.to_owned()));
        stored_alike(&(a, b, d), &(a.to_vec(), b.to_owned(), d.to_vec()));
        stored_alike(&(c, a, Some(c), b), &(c, a.to_vec(), Some(c), b.to_owned()));
        stored_alike(&(b, d.to_vec(), c, a), &(b.to_owned(), d.to_vec(), c, a.to_vec()));
    }

    #[test]
    fn garbage_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        garbage::<u64>(&bytes);
        garbage::<bool>(&bytes);
        garbage::<str>(&bytes);
        garbage::<[u8]>(&bytes);
        garbage::<[u8; 7]>(&bytes);
        garbage::<(String, Option<i16>, Vec<u8>)>(&bytes);
        garbage::<(Reverse<String>, f64, Reverse<Option<f32>>)>(&bytes);
        _ = <u32 as Value>::decode(&bytes);
        _ = <bool as Value>::decode(&bytes);
        _ = <str as Value>::decode(&bytes);
        _ = <Postcard<(String, Vec<u64>)>>::decode(&bytes);
    }

    #[test]
    fn values_come_back(number in any::<i64>(), text in ".*", list in any::<Vec<(u8, String)>>()) {
        assert_eq!(<i64 as Value>::decode(&<i64 as Value>::encode(&number).unwrap()), Ok(number));
        assert_eq!(<str as Value>::decode(&<str as Value>::encode(&text).unwrap()), Ok(&*text));
        let encoded = <Postcard<Vec<(u8, String)>>>::encode(&list).unwrap();
        assert_eq!(<Postcard<Vec<(u8, String)>>>::decode(&encoded), Ok(list));
    }
}

#[test]
fn trailing_bytes_are_refused() {
    assert!(<u16 as Key>::decode(&[1, 2, 3]).is_err());
    assert!(<u16 as Value>::decode(&[1, 2, 3]).is_err());
    assert!(<Postcard<u8>>::decode(&[1, 2]).is_ok());
    assert!(<Postcard<u8>>::decode(&[1, 2, 3]).is_err());
}

#[test]
fn special_floats_have_their_place() {
    let ascending =
        [-f64::NAN, f64::NEG_INFINITY, -1.5, -0.0, 0.0, f64::MIN_POSITIVE, f64::INFINITY, f64::NAN];
    assert!(ascending.map(|float| encode(&float)).is_sorted_by(|a, b| a < b));
}
