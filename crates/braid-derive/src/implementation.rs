//! Generates the implementation of `braiddb::Key` for a shape. Fields are encoded like the parts of
//! a tuple. All except the last use the encoding with a detectable end. The last one uses the plain
//! encoding if the key is alone or last.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Fields, Member, Type};

use super::shape::{Kind, Shape};

/// The position of a key.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// Alone, or last in a tuple.
    Last,
    /// In a tuple, with more to come.
    Before,
}

/// Returns the implementation.
pub fn of(shape: &Shape<'_>) -> TokenStream {
    let ident = shape.ident;
    let type_name = type_name(shape);
    let [encode, encode_part] = [Place::Last, Place::Before].map(|place| encode(shape, place));
    let shown = shown(shape);
    let [decode, decode_part] = [Place::Last, Place::Before].map(|place| decode(shape, place));
    quote! {
        #[automatically_derived]
        impl ::braiddb::Key for #ident {
            type Owned = Self;

            fn type_name() -> ::std::string::String {
                #type_name
            }

            fn encode(&self, out: &mut ::braiddb::KeyBuffer) {
                #encode
            }

            fn decode(bytes: &[u8]) -> ::core::result::Result<Self, ::braiddb::DecodeError> {
                #decode
            }

            fn shown(key: &Self) -> ::core::option::Option<::std::string::String> {
                #shown
            }

            fn encode_part(&self, out: &mut ::braiddb::KeyBuffer) {
                #encode_part
            }

            fn decode_part(
                bytes: &[u8],
            ) -> ::core::result::Result<(Self, &[u8]), ::braiddb::DecodeError> {
                #decode_part
            }
        }
    }
}

/// Returns the path of a `Key` method for a field's type. The compiler reports unmet trait bounds
/// at the type.
fn method(kind: &Type, name: &str) -> TokenStream {
    let name = Ident::new(name, kind.span());
    quote_spanned!(kind.span()=> <#kind as ::braiddb::Key>::#name)
}

/// A struct's name includes the types of its fields, because none of them can change.
fn type_name(shape: &Shape<'_>) -> TokenStream {
    let name = &shape.name;
    match &shape.kind {
        Kind::Enum(_) => quote!(::std::string::String::from(#name)),
        Kind::Struct(fields) => {
            let names = fields.iter().map(|field| method(&field.ty, "type_name"));
            quote! {
                let fields: ::std::vec::Vec<::std::string::String> = ::std::vec![#(#names()),*];
                ::std::format!("{}({})", #name, fields.join(", "))
            }
        }
    }
}

/// Returns the names of the fields in Rust and in the implementation.
fn bindings(fields: &Fields) -> (Vec<Member>, Vec<Ident>) {
    let members: Vec<Member> = fields.members().collect();
    let names = (0..members.len()).map(|place| format_ident!("field_{place}")).collect();
    (members, names)
}

/// Formats like `Debug`, with the fields formatted like keys; unknown if a field is.
fn shown(shape: &Shape<'_>) -> TokenStream {
    let arm = |path: TokenStream, ident: &Ident, fields: &Fields| {
        let (members, names) = bindings(fields);
        let name = ident.unraw().to_string();
        let parts: Vec<String> = members
            .iter()
            .map(|member| match member {
                Member::Named(field) => format!("{}: {{}}", field.unraw()),
                Member::Unnamed(_) => "{}".to_owned(),
            })
            .collect();
        let text = match fields {
            Fields::Unit => name,
            Fields::Named(_) if parts.is_empty() => name,
            Fields::Named(_) => format!("{name} {{{{ {} }}}}", parts.join(", ")),
            Fields::Unnamed(_) => format!("{name}({})", parts.join(", ")),
        };
        let fields = fields.iter().zip(&names).map(|(field, name)| {
            let shown = method(&field.ty, "shown");
            quote!(#shown(#name)?)
        });
        quote! {
            #path { #(#members: #names),* } => ::core::option::Option::Some(::std::format!(#text #(, #fields)*))
        }
    };
    let arms: Vec<TokenStream> = match &shape.kind {
        Kind::Struct(fields) => vec![arm(quote!(Self), shape.ident, fields)],
        Kind::Enum(cases) => {
            let arms = cases.iter().map(|case| {
                let ident = case.ident;
                arm(quote!(Self::#ident), ident, case.fields)
            });
            arms.collect()
        }
    };
    quote!(match key { #(#arms),* })
}

fn encode(shape: &Shape<'_>, place: Place) -> TokenStream {
    let arm = |path: TokenStream, number: Option<u8>, fields: &Fields| {
        let (members, names) = bindings(fields);
        let number = number.map(|number| quote!(out.push(#number);));
        let parts = fields.iter().zip(&names).enumerate().map(|(at, (field, name))| {
            let is_last = at + 1 == names.len() && place == Place::Last;
            let encode = method(&field.ty, if is_last { "encode" } else { "encode_part" });
            quote!(#encode(#name, out);)
        });
        quote!(#path { #(#members: #names),* } => { #number #(#parts)* })
    };
    let arms: Vec<TokenStream> = match &shape.kind {
        Kind::Struct(fields) => vec![arm(quote!(Self), None, fields)],
        Kind::Enum(cases) => {
            let arms = cases.iter().map(|case| {
                let ident = case.ident;
                arm(quote!(Self::#ident), Some(case.number), case.fields)
            });
            arms.collect()
        }
    };
    // Without fields and number, nothing is appended.
    quote! {
        let _ = &out;
        match self { #(#arms),* }
    }
}

fn decode(shape: &Shape<'_>, place: Place) -> TokenStream {
    let cases = match &shape.kind {
        Kind::Struct(fields) => return decode_fields(quote!(Self), fields, place),
        Kind::Enum(cases) => cases,
    };
    let arms = cases.iter().map(|case| {
        let (ident, number) = (case.ident, case.number);
        let fields = decode_fields(quote!(Self::#ident), case.fields, place);
        quote!(#number => { #fields })
    });
    let name = &shape.name;
    let unknown = format!("{name} as this program knows it, with a variant of number {{}}");
    quote! {
        let ::core::option::Option::Some((number, bytes)) = bytes.split_first() else {
            return ::core::result::Result::Err(::braiddb::DecodeError::new(#name));
        };
        match *number {
            #(#arms)*
            number => ::core::result::Result::Err(::braiddb::DecodeError::new(::std::format!(#unknown, number))),
        }
    }
}

/// Returns the value with its fields in `bytes`, and the bytes after it if the place allows any.
fn decode_fields(path: TokenStream, fields: &Fields, place: Place) -> TokenStream {
    let (members, names) = bindings(fields);
    let value = quote!(#path { #(#members: #names),* });
    let parts = fields.iter().zip(&names).enumerate().map(|(at, (field, name))| {
        if at + 1 == names.len() && place == Place::Last {
            let decode = method(&field.ty, "decode");
            return quote!(let #name = #decode(bytes)?;);
        }
        let decode = method(&field.ty, "decode_part");
        quote!(let (#name, bytes) = #decode(bytes)?;)
    });
    let end = match place {
        Place::Before => quote!(::core::result::Result::Ok((#value, bytes))),
        Place::Last if names.is_empty() => quote! {
            if !bytes.is_empty() {
                let name = <Self as ::braiddb::Key>::type_name();
                return ::core::result::Result::Err(::braiddb::DecodeError::new(name));
            }
            ::core::result::Result::Ok(#value)
        },
        Place::Last => quote!(::core::result::Result::Ok(#value)),
    };
    quote!(#(#parts)* #end)
}
