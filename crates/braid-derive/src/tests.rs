//! Tests that the derive rejects types that cannot be keys, with messages that state the remedy.

use quote::quote;

use super::*;

fn refusal(input: proc_macro2::TokenStream) -> String {
    let input = syn::parse2(input).expect("a type");
    derive(&input).expect_err("refused").to_string()
}

#[test]
fn what_cannot_be_a_key_is_refused() {
    let named = quote!(#[key(name = "shop.key")]);
    let cases = [
        (
            quote!(
                struct Key(u64);
            ),
            "#[key(name = \"...\")]",
        ),
        (
            quote!(
                #[key(name = "u64")]
                struct Key(u64);
            ),
            "another type",
        ),
        (
            quote!(
                #[key(name = "a, b")]
                struct Key(u64);
            ),
            "letters, digits",
        ),
        (
            quote!(
                #[key(name = "")]
                struct Key(u64);
            ),
            "letters, digits",
        ),
        (
            quote!(
                #[key(label = "a")]
                struct Key(u64);
            ),
            "only `name",
        ),
        (
            quote!(
                #[key(name = "a", name = "b")]
                struct Key(u64);
            ),
            "twice",
        ),
        (quote!(#named struct Key<T>(T);), "generic"),
        (quote!(#named struct Key<'a>(&'a str);), "generic"),
        (quote!(#named union Key { a: u64, b: i64 }), "union"),
        (quote!(#named enum Key {}), "without variants"),
        (quote!(#named enum Key { A = 3, B = 2 }), "ascend"),
        (quote!(#named enum Key { A = 3, B = 3 }), "4 or more"),
        (quote!(#named enum Key { A = 256 }), "256, must fit a byte"),
        (quote!(#named enum Key { A = 255, B }), "256, must fit a byte"),
        (quote!(#named enum Key { A = -1 }), "from 0 to 255"),
        (quote!(#named enum Key { A = LAST }), "from 0 to 255"),
        (quote!(#named enum Key { #[key(number = 3)] A }), "`= 3` after it"),
        (quote!(#named struct Key { #[key(name = "b")] a: u64 }), "before the type"),
    ];
    for (input, said) in cases {
        let message = refusal(input.clone());
        assert!(message.contains(said), "{input}: {message:?} does not say {said:?}");
    }
}

#[test]
fn variants_are_numbered_as_rust_does() {
    let input = quote!(
        #[key(name = "key")]
        enum Key {
            A,
            B = 7,
            C,
            D = 0xff,
        }
    );
    let input: DeriveInput = syn::parse2(input).unwrap();
    let shape::Kind::Enum(cases) = shape::Shape::of(&input).unwrap().kind else {
        panic!("an enum");
    };
    assert!(cases.iter().map(|case| case.number).eq([0, 7, 8, 255]));
    let input = quote!(
        #[key(name = "key")]
        enum Key {
            A = (3),
        }
    );
    derive(&syn::parse2(input).unwrap()).unwrap();
}
