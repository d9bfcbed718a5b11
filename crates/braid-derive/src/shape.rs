//! The shape of a key type: its name for the catalog, and its fields or its variants with their
//! numbers.

use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Fields, Ident, Lit, LitStr, Result, Variant};

/// Names of the engine's key types, which other types must not use.
const TAKEN: [&str; 17] = [
    "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f32", "f64", "bool",
    "str", "bytes", "uuid", "char",
];

/// A type that derives `Key`.
pub struct Shape<'a> {
    /// The name in Rust.
    pub ident: &'a Ident,
    /// The name in the catalog.
    pub name: String,
    pub kind: Kind<'a>,
}

pub enum Kind<'a> {
    Struct(&'a Fields),
    /// In ascending order of numbers.
    Enum(Vec<Case<'a>>),
}

/// A variant.
pub struct Case<'a> {
    pub ident: &'a Ident,
    /// The first byte of its encoding.
    pub number: u8,
    pub fields: &'a Fields,
}

impl<'a> Shape<'a> {
    /// Parses the shape of `input`.
    ///
    /// # Errors
    /// Reports, at its position, what is missing or cannot be a key.
    pub fn of(input: &'a DeriveInput) -> Result<Self> {
        if let Some(first) = input.generics.params.first() {
            let message = "`Key` cannot be derived for a generic type, for its name in the catalog would not say of \
                           what: implement it by hand, or derive it for a type of your own around each case";
            return Err(Error::new(first.span(), message));
        }
        let kind = match &input.data {
            Data::Struct(data) => Kind::Struct(&data.fields),
            Data::Enum(data) if data.variants.is_empty() => {
                return Err(Error::new(input.ident.span(), "an enum without variants has no keys"));
            }
            Data::Enum(data) => Kind::Enum(cases(data.variants.iter())?),
            Data::Union(data) => {
                let message = "a union cannot be a key: nothing tells which of its fields is there";
                return Err(Error::new(data.union_token.span, message));
            }
        };
        Ok(Self { ident: &input.ident, name: name(input)?, kind })
    }
}

/// Returns the variants with their numbers.
fn cases<'a>(variants: impl Iterator<Item = &'a Variant>) -> Result<Vec<Case<'a>>> {
    let (mut cases, mut next) = (Vec::new(), 0);
    for variant in variants {
        let (number, span) = match &variant.discriminant {
            Some((_, written)) => (number(written)?, written.span()),
            None => (next, variant.ident.span()),
        };
        if number < next {
            let message =
                format!("numbers of variants must ascend as they are written: {next} or more");
            return Err(Error::new(span, message));
        }
        let Ok(byte) = u8::try_from(number) else {
            return Err(Error::new(
                span,
                format!("the number of a variant, {number}, must fit a byte"),
            ));
        };
        cases.push(Case { ident: &variant.ident, number: byte, fields: &variant.fields });
        next = number + 1;
    }
    Ok(cases)
}

fn number(written: &Expr) -> Result<u64> {
    match written {
        // Macros pass expressions in such groups.
        Expr::Group(group) => return number(&group.expr),
        Expr::Paren(inside) => return number(&inside.expr),
        _ => {}
    }
    if let Expr::Lit(literal) = written
        && let Lit::Int(integer) = &literal.lit
    {
        return integer.base10_parse();
    }
    Err(Error::new(
        written.span(),
        "the number of a key's variant is written as such, from 0 to 255",
    ))
}

/// Returns the name in `#[key(name = "...")]`.
fn name(input: &DeriveInput) -> Result<String> {
    let mut name = None::<LitStr>;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("key")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                return Err(meta.error("only `name = \"...\"` is known"));
            }
            if name.is_some() {
                return Err(meta.error("the name is given twice"));
            }
            name = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    refuse_inside(input)?;
    let Some(literal) = name else {
        let message = "give the type a name of its own for the catalog, which stays when the type is renamed or \
                       moved: `#[key(name = \"...\")]`";
        return Err(Error::new(input.ident.span(), message));
    };
    let name = literal.value();
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    if name.is_empty() || !name.chars().all(is_fit) {
        let message = "the name has letters, digits, and `.`, `_`, `-` or `:` between them";
        return Err(Error::new(literal.span(), message));
    }
    if TAKEN.contains(&name.as_str()) {
        let message = format!("`{name}` is what the catalog calls keys of another type");
        return Err(Error::new(literal.span(), message));
    }
    Ok(name)
}

/// Rejects `#[key(...)]` on variants and fields, where it has no meaning.
fn refuse_inside(input: &DeriveInput) -> Result<()> {
    let fields = |fields: &Fields| fields.iter().try_for_each(|field| refuse(&field.attrs));
    match &input.data {
        Data::Struct(data) => fields(&data.fields),
        Data::Enum(data) => data.variants.iter().try_for_each(|variant| {
            refuse(&variant.attrs)?;
            fields(&variant.fields)
        }),
        Data::Union(_) => Ok(()),
    }
}

fn refuse(attributes: &[Attribute]) -> Result<()> {
    match attributes.iter().find(|attribute| attribute.path().is_ident("key")) {
        Some(attribute) => {
            let message = "`#[key(...)]` stands before the type; the number of a variant is written `= 3` after it";
            Err(Error::new(attribute.span(), message))
        }
        None => Ok(()),
    }
}
