//! What the server knows about types: fields, how lists are merged, what becomes of empty values.
//!
//! The built-in types come from one file, distilled from the Go types and the OpenAPI documents of a
//! real server (`schema/README.md`); custom resources bring their own schema. Both become the same
//! tree, so decoding, patching and field ownership are written once.
//!
//! Deliberately absent: values. See [`decode`] for what is done to them.

pub(crate) mod cel;
pub(crate) mod crd;
pub(crate) mod decode;
mod time;
pub(crate) mod validate;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use self::validate::Rules;

/// A tree of types. Types refer to each other by number, because some contain themselves.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    nodes: Vec<Node>,
    named: BTreeMap<String, u32>,
}

/// One type.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) shape: Shape,
    /// The name of the Go struct, for messages.
    pub(crate) name: String,
    /// What a custom resource demands beyond the shape.
    pub(crate) rules: Option<Box<Rules>>,
}

/// What a value of a type looks like.
#[derive(Debug, Default)]
pub(crate) enum Shape {
    /// Whatever it is, it stays.
    #[default]
    Any,
    Scalar(Scalar),
    /// `always` names the fields that appear where they are missing.
    Struct {
        fields: BTreeMap<String, Field>,
        always: Vec<String>,
        atomic: bool,
        open: bool,
    },
    Map {
        values: u32,
        atomic: bool,
    },
    List {
        items: u32,
        kind: ListKind,
        merge_key: Option<String>,
        merge: bool,
    },
}

/// A leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Bytes,
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A field of a struct.
#[derive(Debug, Clone, Default)]
pub(crate) struct Field {
    pub(crate) node: u32,
    /// Written even when empty.
    pub(crate) keep: bool,
    /// Empty is not the same as absent.
    pub(crate) pointer: bool,
    pub(crate) default: Option<Value>,
}

/// A type in its tree.
#[derive(Clone, Copy)]
pub(crate) struct Type<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) id: u32,
}

impl<'a> Type<'a> {
    pub(crate) fn node(self) -> &'a Node {
        // Ids only come from the same schema.
        &self.schema.nodes[self.id as usize]
    }

    pub(crate) fn at(self, id: u32) -> Self {
        Self { schema: self.schema, id }
    }

    /// A field's description, if this is a struct that has it.
    pub(crate) fn field(self, name: &str) -> Option<&'a Field> {
        match &self.node().shape {
            Shape::Struct { fields, .. } => fields.get(name),
            _ => None,
        }
    }

    /// The type below a field name: of the field, or of the map's values.
    pub(crate) fn child(self, name: &str) -> Option<Self> {
        match &self.node().shape {
            Shape::Struct { fields, .. } => fields.get(name).map(|field| self.at(field.node)),
            Shape::Map { values, .. } => Some(self.at(*values)),
            _ => None,
        }
    }

    pub(crate) fn item(self) -> Option<Self> {
        match &self.node().shape {
            Shape::List { items, .. } => Some(self.at(*items)),
            _ => None,
        }
    }
}

impl Schema {
    pub(crate) fn add(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn set(&mut self, id: u32, node: Node) {
        self.nodes[id as usize] = node;
    }

    pub(crate) fn root(&self, name: &str) -> Option<Type<'_>> {
        self.named.get(name).map(|id| Type { schema: self, id: *id })
    }

    pub(crate) fn name_root(&mut self, name: &str, id: u32) {
        self.named.insert(name.to_owned(), id);
    }

    /// Adds a built-in type, by its distilled name.
    pub(crate) fn import(&mut self, name: &str) -> u32 {
        if let Some(id) = self.named.get(name) {
            return *id;
        }
        let id = self.add(Node::default());
        self.named.insert(name.to_owned(), id);
        if let Some(source) = FILE.types.get(name) {
            let fields =
                source.fields.iter().map(|(key, field)| (key.clone(), self.import_field(field))).collect();
            let appears = |field: &FileField| field.keep || field.default.is_some();
            let always = source
                .fields
                .iter()
                .filter(|(_, field)| appears(field))
                .map(|(key, _)| key.clone())
                .collect();
            let shape = Shape::Struct { fields, always, atomic: source.atomic, open: false };
            let name = name.rsplit('.').next().unwrap_or(name).to_owned();
            self.set(id, Node { shape, name, rules: None });
        }
        id
    }

    fn import_field(&mut self, source: &FileField) -> Field {
        Field {
            node: self.import_type(source),
            keep: source.keep,
            pointer: source.ptr,
            default: source.default.clone(),
        }
    }

    fn import_type(&mut self, source: &FileField) -> u32 {
        let scalar = |scalar| Shape::Scalar(scalar);
        let shape = match source.t.as_str() {
            "string" => scalar(Scalar::String),
            "bool" => scalar(Scalar::Bool),
            "int32" => scalar(Scalar::Int32),
            "int64" => scalar(Scalar::Int64),
            "float" => scalar(Scalar::Float),
            "time" => scalar(Scalar::Time),
            "microtime" => scalar(Scalar::MicroTime),
            "quantity" => scalar(Scalar::Quantity),
            "intorstring" => scalar(Scalar::IntOrString),
            "bytes" => scalar(Scalar::Bytes),
            "list" => {
                let items = source.of.as_deref().map_or(0, |of| self.import_type(of));
                let kind = match source.list.as_str() {
                    "set" => ListKind::Set,
                    "map" => ListKind::Map(source.keys.clone()),
                    _ => ListKind::Atomic,
                };
                let merge = source.patch.split(',').any(|one| one == "merge");
                let merge_key = (!source.key.is_empty()).then(|| source.key.clone());
                Shape::List { items, kind, merge_key, merge }
            }
            "map" => {
                let values = source.of.as_deref().map_or(0, |of| self.import_type(of));
                Shape::Map { values, atomic: source.atomic }
            }
            "ref" => {
                let id = self.import(&source.r#ref);
                if !source.atomic && !source.granular {
                    return id;
                }
                // The same struct, atomic or not at this place only.
                match &self.nodes[id as usize] {
                    Node { shape: Shape::Struct { fields, always, .. }, .. } => Shape::Struct {
                        fields: fields.clone(),
                        always: always.clone(),
                        atomic: source.atomic,
                        open: false,
                    },
                    _ => return id,
                }
            }
            _ => Shape::Any,
        };
        self.add(Node { shape, ..Node::default() })
    }
}

#[derive(Deserialize)]
struct File {
    types: BTreeMap<String, FileType>,
    kinds: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct FileType {
    fields: BTreeMap<String, FileField>,
    #[serde(default)]
    atomic: bool,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "so many switches does a field have")]
struct FileField {
    t: String,
    r#ref: String,
    of: Option<Box<FileField>>,
    keep: bool,
    ptr: bool,
    list: String,
    keys: Vec<String>,
    atomic: bool,
    granular: bool,
    patch: String,
    key: String,
    default: Option<Value>,
}

static FILE: LazyLock<File> = LazyLock::new(|| {
    let text = include_str!("../../schema/kubernetes.json");
    serde_json::from_str(text).unwrap_or_else(|_| File { types: BTreeMap::new(), kinds: BTreeMap::new() })
});

static BUILT_IN: LazyLock<Schema> = LazyLock::new(|| {
    let mut schema = Schema::default();
    for (kind, name) in &FILE.kinds {
        let id = schema.import(name);
        schema.name_root(kind, id);
    }
    schema
});

/// The type of a built-in kind.
pub(crate) fn built_in(kind: &str) -> Option<Type<'static>> {
    BUILT_IN.root(kind)
}

/// The type of every object's metadata.
pub(crate) fn object_meta() -> Option<Type<'static>> {
    BUILT_IN.root("meta.v1.ObjectMeta")
}
