//! Deserializer that provides a type with the values it requests, and records the requests.

use std::any::type_name;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::{MAX_PARTS, MAX_STRIKES, ShapeKind, ShapeRefusal, ShapeTracer};

/// The place of a requested value. Without a node, nothing is recorded.
pub(super) struct ShapePlace<'t> {
    pub(super) tracer: &'t mut ShapeTracer,
    pub(super) node: Option<usize>,
}

impl ShapePlace<'_> {
    /// Selects one of the samples to provide.
    fn plain(&mut self, name: &'static str, values: usize) -> Result<usize, ShapeRefusal> {
        self.tracer.step()?;
        let Some(node) = self.node else { return Ok(0) };
        let values = u8::try_from(values).expect("few");
        self.tracer.last = Some(node);
        let node = &mut self.tracer.nodes[node];
        (node.kind, node.is_done) = (ShapeKind::Plain(name, values), true);
        Ok(usize::from(node.refused % values))
    }

    /// Records the kind of the value, and returns its node. Returns none if any value suffices or
    /// the value stays empty; it is then read empty.
    fn filled(&mut self, kind: ShapeKind) -> Result<(Option<usize>, usize), ShapeRefusal> {
        self.tracer.step()?;
        let Some(node) = self.node else { return Ok((None, 0)) };
        let node_now = &mut self.tracer.nodes[node];
        node_now.kind = kind;
        Ok((Some(node), usize::from(node_now.refused == 0)))
    }

    fn finish<V>(self, read: Result<V, ShapeRefusal>) -> Result<V, ShapeRefusal> {
        match self.node {
            Some(node) => self.tracer.finish(node, read),
            None => read,
        }
    }
}

macro_rules! plain {
    ($($method:ident($($argument:ty)?) $visit:ident $name:literal $values:expr;)*) => {$(
        fn $method<V: Visitor<'de>>(mut self, $(_: $argument,)? visitor: V) -> Result<V::Value, ShapeRefusal> {
            let values = $values;
            let chosen = self.plain($name, values.len())?;
            visitor.$visit(values[chosen])
        }
    )*};
}

/// Sample texts, one of which the type may accept.
const TEXTS: [&str; 10] = [
    "",
    "a",
    "1",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:00",
    "1970-01-01",
    "00:00:00",
    "00000000-0000-0000-0000-000000000000",
    "127.0.0.1",
    "http://a/",
];

const LENGTHS: [&[u8]; 7] = [&[], &[0], &[0; 4], &[0; 8], &[0; 16], &[0; 20], &[0; 32]];

impl<'de> Deserializer<'de> for ShapePlace<'_> {
    type Error = ShapeRefusal;

    plain! {
        deserialize_bool() visit_bool "bool" [false, true];
        deserialize_i8() visit_i8 "i8" [1, 0, 100];
        deserialize_i16() visit_i16 "i16" [1, 0, 2000];
        deserialize_i32() visit_i32 "i32" [1, 0, 2000];
        deserialize_i64() visit_i64 "i64" [1, 0, 2000];
        deserialize_i128() visit_i128 "i128" [1, 0, 2000];
        deserialize_u8() visit_u8 "u8" [1, 0, 100];
        deserialize_u16() visit_u16 "u16" [1, 0, 2000];
        deserialize_u32() visit_u32 "u32" [1, 0, 2000];
        deserialize_u64() visit_u64 "u64" [1, 0, 2000];
        deserialize_u128() visit_u128 "u128" [1, 0, 2000];
        deserialize_f32() visit_f32 "f32" [1.0, 0.0];
        deserialize_f64() visit_f64 "f64" [1.0, 0.0];
        deserialize_char() visit_char "char" ['a', '1'];
        deserialize_str() visit_str "str" TEXTS;
        deserialize_string() visit_str "str" TEXTS;
        deserialize_identifier() visit_str "str" TEXTS;
        deserialize_bytes() visit_bytes "bytes" LENGTHS;
        deserialize_byte_buf() visit_bytes "bytes" LENGTHS;
    }

    fn deserialize_unit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, ShapeRefusal> {
        self.plain("()", 1)?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(
        mut self,
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.plain("any", 1)?;
        visitor.visit_unit()
    }

    /// The accepted values are unknown.
    fn deserialize_any<V: Visitor<'de>>(mut self, _: V) -> Result<V::Value, ShapeRefusal> {
        self.plain("any", 1)?;
        Err(ShapeRefusal::Other)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, ShapeRefusal> {
        let read = match self.filled(ShapeKind::Option)? {
            (Some(node), 1) => {
                let part = self.tracer.part(node, 0);
                self.tracer.depth += 1;
                let read =
                    visitor.visit_some(ShapePlace { tracer: &mut *self.tracer, node: Some(part) });
                self.tracer.depth -= 1;
                read
            }
            _ => visitor.visit_none(),
        };
        self.finish(read)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, ShapeRefusal> {
        let (node, count) = self.filled(ShapeKind::List)?;
        let read =
            visitor.visit_seq(CompositeParts { tracer: &mut *self.tracer, node, next: 0, count });
        self.finish(read)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, ShapeRefusal> {
        let (node, count) = self.filled(ShapeKind::Map)?;
        let read =
            visitor.visit_map(CompositeParts { tracer: &mut *self.tracer, node, next: 0, count });
        self.finish(read)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.tracer.parts(self.node, ShapeKind::Tuple(count), count, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.tracer.named((name, type_name::<V>()), self.node, |tracer, node| {
            tracer.parts(node, ShapeKind::Tuple(count), count, visitor)
        })
    }

    /// The inner value has the same encoding.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.tracer.named((name, type_name::<V>()), self.node, |tracer, node| {
            visitor.visit_newtype_struct(ShapePlace { tracer, node })
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.tracer.named((name, type_name::<V>()), self.node, |tracer, node| {
            tracer.fields(node, fields, visitor)
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        cases: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        let identity = (name, type_name::<V>());
        self.tracer.named(identity, self.node, |tracer, node| {
            let readable = tracer.readable.get(&identity).copied();
            let Some(node) = node else {
                let case = cases[readable.ok_or(ShapeRefusal::Other)?];
                return visitor.visit_enum(EnumCase { tracer, node: None, case });
            };
            tracer.nodes[node].kind = ShapeKind::Enum(cases);
            let count = cases.len().min(MAX_PARTS);
            let index = tracer.case(node, count, readable);
            let case = cases.get(index).ok_or(ShapeRefusal::Other)?;
            let part = tracer.part(node, index);
            let read =
                visitor.visit_enum(EnumCase { tracer: &mut *tracer, node: Some(part), case });
            match &read {
                Ok(_) => _ = tracer.readable.entry(identity).or_insert(index),
                Err(refusal) => {
                    if tracer.is_open(refusal) && tracer.nodes[part].strikes < MAX_STRIKES {
                        tracer.nodes[part].strikes += 1;
                        tracer.goes_on = true;
                    }
                }
            }
            tracer.finish(node, read)
        })
    }

    fn is_human_readable(&self) -> bool {
        self.tracer.is_human_readable
    }
}

/// Elements of a list or a tuple, fields of a struct, or entries of a map.
pub(super) struct CompositeParts<'t> {
    pub(super) tracer: &'t mut ShapeTracer,
    pub(super) node: Option<usize>,
    pub(super) next: usize,
    pub(super) count: usize,
}

impl CompositeParts<'_> {
    fn read<'de, S>(&mut self, part: usize, seed: S) -> Result<S::Value, ShapeRefusal>
    where
        S: DeserializeSeed<'de>,
    {
        let part = self.node.map(|node| self.tracer.part(node, part));
        self.tracer.read(part, seed)
    }
}

impl<'de> SeqAccess<'de> for CompositeParts<'_> {
    type Error = ShapeRefusal;

    fn next_element_seed<S>(&mut self, seed: S) -> Result<Option<S::Value>, ShapeRefusal>
    where
        S: DeserializeSeed<'de>,
    {
        if self.next == self.count {
            return Ok(None);
        }
        self.next += 1;
        self.read(self.next - 1, seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count - self.next)
    }
}

impl<'de> MapAccess<'de> for CompositeParts<'_> {
    type Error = ShapeRefusal;

    fn next_key_seed<S>(&mut self, seed: S) -> Result<Option<S::Value>, ShapeRefusal>
    where
        S: DeserializeSeed<'de>,
    {
        if self.next == self.count {
            return Ok(None);
        }
        self.next += 1;
        self.read(0, seed).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ShapeRefusal> {
        self.read(1, seed)
    }
}

/// Fields of a struct, by their names.
pub(super) struct GivenFields<'t> {
    pub(super) tracer: &'t mut ShapeTracer,
    pub(super) node: usize,
    pub(super) fields: &'static [&'static str],
    pub(super) names: &'t [String],
}

impl<'de> MapAccess<'de> for GivenFields<'_> {
    type Error = ShapeRefusal;

    fn next_key_seed<S>(&mut self, seed: S) -> Result<Option<S::Value>, ShapeRefusal>
    where
        S: DeserializeSeed<'de>,
    {
        let Some(name) = self.names.first() else { return Ok(None) };
        let name: StrDeserializer<'_, ShapeRefusal> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, ShapeRefusal> {
        let (name, names) = self.names.split_first().ok_or(ShapeRefusal::Other)?;
        self.names = names;
        let field = self.fields.iter().position(|field| field == name);
        let part = field.map(|field| self.tracer.part(self.node, field));
        self.tracer.read(part, seed)
    }
}

/// A variant of an enum, by its name, and its contents.
struct EnumCase<'t> {
    tracer: &'t mut ShapeTracer,
    node: Option<usize>,
    case: &'static str,
}

impl<'de> EnumAccess<'de> for EnumCase<'_> {
    type Error = ShapeRefusal;
    type Variant = Self;

    fn variant_seed<S>(self, seed: S) -> Result<(S::Value, Self), ShapeRefusal>
    where
        S: DeserializeSeed<'de>,
    {
        let case: StrDeserializer<'_, ShapeRefusal> = self.case.into_deserializer();
        Ok((seed.deserialize(case)?, self))
    }
}

impl<'de> VariantAccess<'de> for EnumCase<'_> {
    type Error = ShapeRefusal;

    fn unit_variant(self) -> Result<(), ShapeRefusal> {
        ShapePlace { tracer: self.tracer, node: self.node }.plain("()", 1).map(drop)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, ShapeRefusal> {
        self.tracer.read(self.node, seed)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.tracer.parts(self.node, ShapeKind::Tuple(count), count, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ShapeRefusal> {
        self.tracer.fields(self.node, fields, visitor)
    }
}
