//! A field of an API object that may be absent, good, or of a type it must not have.
//!
//! Reading an object never fails because of one bad field: the field says what was found, and the conversion decides
//! what that costs.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// A field as found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// Not there, or `null`.
    #[default]
    Absent,
    /// There, of the right type.
    Given(T),
    /// There, of a wrong type: what was found, shortened.
    Wrong(String),
}

impl<T> Field<T> {
    /// The value, when there is a good one.
    pub fn given(&self) -> Option<&T> {
        match self {
            Field::Given(value) => Some(value),
            Field::Absent | Field::Wrong(_) => None,
        }
    }
}

impl<T> From<T> for Field<T> {
    fn from(value: T) -> Self {
        Field::Given(value)
    }
}

/// A type that a field can have. Each method reads one kind of input; what is not overridden is of a wrong type.
pub trait Shape: Sized {
    /// What is expected, in words.
    const EXPECTED: &'static str;

    /// From a text.
    fn from_text(_: &str) -> Option<Self> {
        None
    }

    /// From a whole number.
    fn from_int(_: i64) -> Option<Self> {
        None
    }

    /// From true or false.
    fn from_bool(_: bool) -> Option<Self> {
        None
    }

    /// From a list.
    ///
    /// # Errors
    /// Those of the input's own syntax.
    fn from_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    /// From an object.
    ///
    /// # Errors
    /// Those of the input's own syntax.
    fn from_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

impl Shape for String {
    const EXPECTED: &'static str = "a text";

    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl Shape for i64 {
    const EXPECTED: &'static str = "a whole number";

    fn from_int(number: i64) -> Option<Self> {
        Some(number)
    }
}

impl Shape for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_bool(value: bool) -> Option<Self> {
        Some(value)
    }
}

impl<T: Shape> Shape for Vec<Field<T>> {
    const EXPECTED: &'static str = "a list";

    fn from_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Some(items))
    }
}

impl Shape for BTreeMap<String, Field<String>> {
    const EXPECTED: &'static str = "an object";

    fn from_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<Option<Self>, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((key, value)) = map.next_entry()? {
            entries.insert(key, value);
        }
        Ok(Some(entries))
    }
}

impl<'de, T: Shape> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor(PhantomData))
    }
}

struct FieldVisitor<T>(PhantomData<T>);

fn found<T>(value: Option<T>, text: impl FnOnce() -> String) -> Field<T> {
    value.map_or_else(|| Field::Wrong(text()), Field::Given)
}

impl<'de, T: Shape> Visitor<'de> for FieldVisitor<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Self::Value, E> {
        Ok(found(T::from_bool(v), || v.to_string()))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
        Ok(found(T::from_int(v), || v.to_string()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
        Ok(found(i64::try_from(v).ok().and_then(T::from_int), || {
            v.to_string()
        }))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
        Ok(Field::Wrong(v.to_string()))
    }

    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(found(T::from_text(v), || v.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Field::Absent)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Field::Absent)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Deserialize::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Ok(found(T::from_seq(seq)?, || "a list".to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Ok(found(T::from_map(map)?, || "an object".to_owned()))
    }
}
