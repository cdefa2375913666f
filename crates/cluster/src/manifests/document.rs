//! One document of a manifest: an object, or a list whose items are converted one at a time while it is read.

use crate::share::NamePool;
use model::Note;
use model::object::{NotRead, Object, decode};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What a document holds.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) objects: Vec<Hashed>,
    pub(super) not_read: Vec<NotRead>,
    pub(super) notes: Vec<Note>,
}

/// An object, and a hash over all of its text. Equal text has an equal hash, in this process.
#[derive(Debug)]
pub(super) struct Hashed {
    pub(super) object: Object,
    pub(super) hash: u64,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut fields = Map::new();
        let mut items = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "items" {
                let known = ListOf::of(&fields);
                items = Some(map.next_value_seed(ItemsSeed(known))?);
            } else {
                fields.insert(key, map.next_value()?);
            }
        }
        match items {
            None => object(fields).map_err(A::Error::custom),
            Some(items) => list(&fields, items).map_err(A::Error::custom),
        }
    }
}

fn text<'f>(fields: &'f Map<String, Value>, key: &str) -> &'f str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn object(fields: Map<String, Value>) -> Result<Document, &'static str> {
    if fields.is_empty() {
        return Ok(Document::default());
    }
    if text(&fields, "kind").is_empty() {
        return Err("it has no kind, so it is no Kubernetes object, or its end is missing");
    }
    let mut reader = Reader::default();
    reader.take(Value::Object(fields));
    Ok(reader.document)
}

fn list(fields: &Map<String, Value>, items: Items) -> Result<Document, &'static str> {
    // kubectl sorts fields: the kind of a list comes behind its items, and a list that is cut off has none.
    let kind = text(fields, "kind");
    if kind.is_empty() {
        return Err("it has items but no kind, so its end is missing");
    }
    if !kind.ends_with("List") {
        if !items.reader.document.objects.is_empty() {
            return Err("it has items but its kind is no list, so its end is missing");
        }
        let mut reader = Reader::default();
        reader.take(Value::Object(fields.clone()));
        return Ok(reader.document);
    }
    let Items { mut reader, kindless } = items;
    if let Some(of) = ListOf::of(fields) {
        for item in kindless {
            reader.take(of.named(item));
        }
    }
    Ok(reader.document)
}

/// Converts what it is given.
#[derive(Default)]
struct Reader {
    document: Document,
    names: NamePool,
}

impl Reader {
    fn take(&mut self, value: Value) {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let whole = hasher.finish();
        let decoded = decode(value);
        self.document.notes.extend(decoded.notes);
        self.document.not_read.extend(decoded.not_read);
        // One value holds several objects when it is a list in a list.
        for (i, mut object) in (0_u64..).zip(decoded.objects) {
            self.names.share(&mut object);
            let hash = whole.wrapping_add(i);
            self.document.objects.push(Hashed { object, hash });
        }
    }
}

/// The kind that items of a typed list (`ServiceList`) have without saying so.
struct ListOf {
    api_version: String,
    kind: String,
}

impl ListOf {
    fn of(fields: &Map<String, Value>) -> Option<Self> {
        let kind = text(fields, "kind")
            .strip_suffix("List")
            .filter(|kind| !kind.is_empty())?;
        Some(ListOf {
            api_version: text(fields, "apiVersion").to_owned(),
            kind: kind.to_owned(),
        })
    }

    fn named(&self, mut item: Value) -> Value {
        if let Value::Object(fields) = &mut item {
            fields.insert("apiVersion".to_owned(), self.api_version.clone().into());
            fields.insert("kind".to_owned(), self.kind.clone().into());
        }
        item
    }
}

/// The items of a list.
#[derive(Default)]
struct Items {
    reader: Reader,
    /// Items without a kind, read before the list's own kind was.
    kindless: Vec<Value>,
}

struct ItemsSeed(Option<ListOf>);

impl<'de> DeserializeSeed<'de> for ItemsSeed {
    type Value = Items;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Items, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed {
    type Value = Items;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of items")
    }

    fn visit_unit<E>(self) -> Result<Items, E> {
        Ok(Items::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items, A::Error> {
        let mut items = Items::default();
        while let Some(item) = seq.next_element::<Value>()? {
            let named = item.get("kind").is_some_and(Value::is_string);
            match &self.0 {
                _ if named => items.reader.take(item),
                Some(of) => items.reader.take(of.named(item)),
                None => items.kindless.push(item),
            }
        }
        Ok(items)
    }
}
