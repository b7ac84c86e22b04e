//! What a request's tools declare: names, and the JSON types of arguments.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The declared tools of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools(Vec<Tool>);

/// One declared tool, its types already resolved: a schema is a program of the client's, and the thread that decodes must
/// not run it.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// The types of each declared argument.
    properties: BTreeMap<String, Types>,
    /// The types of any other argument.
    others: Types,
}

/// References and alternatives inside each other that are followed before giving up: a schema may refer to itself.
const MAX_DEPTH: usize = 16;

/// Schemas (and list entries in them) that are looked at for one argument, and for all tools of a request. An argument of
/// a published tool has fewer than 50; a schema of twenty that name each other has 20^8 within the depth.
const NODES_PER_ARGUMENT: usize = 1_000;
const NODES_PER_REQUEST: usize = 1_000_000;

impl Tools {
    /// Reads declarations of either form, `{"type":"function","function":{…}}` or the inner object. Entries without a
    /// name cannot be called and are left out.
    pub(crate) fn new(declared: &[Value]) -> Self {
        let mut left = NODES_PER_REQUEST;
        let nothing = Value::Null;
        let tools = declared.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.trim();
            let parameters = ["parameters", "input_schema"].iter().find_map(|key| function.get(*key));
            let parameters = parameters.unwrap_or(&nothing);
            (!name.is_empty()).then(|| Tool::new(name, parameters, &mut left))
        });
        Self(tools.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.0.iter().find(|tool| tool.name == name)
    }

    /// Whether `text` could still become a call's name, or a name with a key glued to it.
    pub(crate) fn may_start(&self, text: &str) -> bool {
        self.0.iter().any(|tool| tool.name.starts_with(text) || text.starts_with(tool.name.as_str()))
    }

    /// Takes `text` apart into a tool's name and the key after it. A key that the tool declares decides, then the longest
    /// name.
    pub(crate) fn split_name<'t>(&self, text: &'t str) -> Option<(&Tool, &'t str)> {
        let candidates = self.0.iter().filter_map(|tool| {
            let key = text.strip_prefix(tool.name.as_str())?.trim();
            (!key.is_empty()).then_some((tool, key))
        });
        candidates.max_by_key(|(tool, key)| (tool.declares(key), tool.name.len()))
    }
}

impl Tool {
    fn new(name: &str, parameters: &Value, left: &mut usize) -> Self {
        let mut types = |schema: &Value| {
            let granted = NODES_PER_ARGUMENT.min(*left);
            let mut nodes = granted;
            let types = types_of(schema, parameters, MAX_DEPTH, &mut nodes);
            *left -= granted - nodes;
            types
        };
        let others = parameters.get("additionalProperties").map_or(Types::ANY, &mut types);
        let properties = parameters.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flatten().map(|(key, schema)| (key.clone(), types(schema)));
        Self { name: name.to_owned(), properties: properties.collect(), others }
    }

    /// Whether the schema names `key`.
    pub(crate) fn declares(&self, key: &str) -> bool {
        self.properties.contains_key(key)
    }

    /// Whether `text` is the beginning of a declared key.
    pub(crate) fn may_declare(&self, text: &str) -> bool {
        let from = self.properties.range::<str, _>((Bound::Included(text), Bound::Unbounded)).next();
        from.is_some_and(|(key, _)| key.starts_with(text))
    }

    /// The only key that the schema names.
    pub(crate) fn only_key(&self) -> Option<&str> {
        if self.properties.len() == 1 { self.properties.keys().next().map(String::as_str) } else { None }
    }

    /// The types that the value of `key` may have.
    pub(crate) fn types(&self, key: &str) -> Types {
        self.properties.get(key).copied().unwrap_or(self.others)
    }
}

/// A set of JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(u8);

impl Types {
    const NONE: Self = Self(0);
    const STRING: Self = Self(1);
    const NUMBER: Self = Self(2);
    const BOOLEAN: Self = Self(4);
    const ARRAY: Self = Self(8);
    const OBJECT: Self = Self(16);
    const NULL: Self = Self(32);
    /// Nothing is declared.
    pub(crate) const ANY: Self = Self(63);

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::STRING,
            "number" | "integer" => Self::NUMBER,
            "boolean" => Self::BOOLEAN,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            "null" => Self::NULL,
            _ => Self::NONE,
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn has(self, other: Self) -> bool {
        self.and(other) != Self::NONE
    }

    /// Whether the value is a string whatever it looks like, so that it can be passed on as it comes.
    pub(crate) fn only_string(self) -> bool {
        self == Self::STRING
    }

    /// The JSON text for a value as the model wrote it: strings bare, everything else as JSON.
    ///
    /// With no string among the declared types, any JSON is taken as it is. With a string among them (or nothing
    /// declared) JSON of another declared type is taken, since the format writes the string `"12"` and the number 12
    /// alike. What remains is a string.
    pub(crate) fn json(self, raw: &str) -> String {
        let text = raw.trim();
        let value = serde_json::from_str::<Value>(text).ok();
        let fits = value.is_some_and(|value| {
            let kind = Self::of(&value);
            let wanted = if self.has(Self::STRING) { kind != Self::STRING && self.has(kind) } else { true };
            // Readers allow 128 levels, and one is added around it.
            wanted && serde_json::from_str::<Value>(&format!("[{text}]")).is_ok()
        });
        if fits { text.to_owned() } else { Value::from(raw).to_string() }
    }
}

/// Takes `cost` off `nodes`; false if there was less.
fn pay(nodes: &mut usize, cost: usize) -> bool {
    let left = nodes.checked_sub(cost);
    *nodes = left.unwrap_or(0);
    left.is_some()
}

/// The types that `schema` allows. Where `depth` or `nodes` are used up, anything is allowed.
fn types_of(schema: &Value, root: &Value, depth: usize, nodes: &mut usize) -> Types {
    let Some(schema) = schema.as_object().filter(|_| depth > 0 && pay(nodes, 1)) else { return Types::ANY };
    let mut types = Types::ANY;
    let mut narrow = |to: Option<Types>| {
        if let Some(to) = to
            && types.has(to)
        {
            types = types.and(to);
        }
    };
    narrow(match schema.get("type") {
        Some(Value::String(name)) => Some(Types::named(name)),
        Some(list) => union(list, nodes, |name, _| name.as_str().map_or(Types::NONE, Types::named)),
        None => None,
    });
    if !schema.contains_key("type") {
        narrow(schema.get("enum").and_then(|list| union(list, nodes, |one, _| Types::of(one))));
        narrow(schema.get("const").map(Types::of));
    }
    for key in ["anyOf", "oneOf"] {
        let list = schema.get(key);
        narrow(list.and_then(|list| union(list, nodes, |one, nodes| types_of(one, root, depth - 1, nodes))));
    }
    for one in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        if *nodes == 0 {
            break;
        }
        narrow(Some(types_of(one, root, depth - 1, nodes)));
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'))
        // Following a pointer takes time by its length.
        && pay(nodes, target.len() / 64)
    {
        narrow(root.pointer(target).map(|target| types_of(target, root, depth - 1, nodes)));
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        types = types.or(Types::NULL);
    }
    types
}

/// The types of any entry of `list`, which costs a node each; `None` if it is no list.
fn union(list: &Value, nodes: &mut usize, mut of: impl FnMut(&Value, &mut usize) -> Types) -> Option<Types> {
    let mut all = Types::NONE;
    for one in list.as_array()? {
        if all == Types::ANY {
            break;
        }
        all = all.or(if pay(nodes, 1) { of(one, nodes) } else { Types::ANY });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn typed(schema: Value, raw: &str) -> String {
        let tools = Tools::new(&[json!({"name": "f", "parameters": {
            "properties": {"x": schema}, "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}})]);
        tools.find("f").unwrap().types("x").json(raw)
    }

    #[test]
    fn p2_types_come_from_the_schema() {
        for (schema, raw, expected) in [
            (json!({"type": "number"}), "10", "10"),
            (json!({"type": "number"}), " 10\n", "10"),
            (json!({"type": "integer"}), "12345678901234567890123", "12345678901234567890123"),
            (json!({"type": "integer"}), "ten", "\"ten\""),
            (json!({"type": "array"}), "[]", "[]"),
            (json!({"type": "array"}), "[1, \"a\"]", "[1, \"a\"]"),
            (json!({"type": "boolean"}), "true", "true"),
            (json!({"type": "object"}), "{\"a\": 1", "\"{\\\"a\\\": 1\""),
            (json!({"type": "string"}), "10", "\"10\""),
            (json!({"type": "string"}), "null", "\"null\""),
            (json!({"type": "string"}), " a \n", "\" a \\n\""),
            (json!({"type": ["string", "null"]}), "null", "null"),
            (json!({"type": ["string", "null"]}), "10", "\"10\""),
            (json!({"type": "string", "nullable": true}), "null", "null"),
            (json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}), "10", "10"),
            (json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}), "true", "\"true\""),
            (json!({"enum": ["1", "2"]}), "1", "\"1\""),
            (json!({"enum": [1, 2]}), "1", "1"),
            (json!({"const": 5}), "5", "5"),
            (json!({"$ref": "#/$defs/n"}), "5", "5"),
            (json!({"$ref": "#/$defs/loop"}), "5", "5"),
            (json!({"allOf": [{"type": "string"}]}), "5", "\"5\""),
            (json!({}), "5", "5"),
            (json!({}), "\"5\"", "\"\\\"5\\\"\""),
            (json!({}), "001", "\"001\""),
            (json!(true), "[1]", "[1]"),
            (json!({"type": "number"}), "1,2", "\"1,2\""),
            (json!({"type": "number"}), "", "\"\""),
        ] {
            assert_eq!(typed(schema.clone(), raw), expected, "{schema} {raw:?}");
        }
        let deep = "[".repeat(128) + &"]".repeat(128);
        assert_eq!(typed(json!({"type": "array"}), &deep), format!("\"{deep}\""));
    }

    #[test]
    fn a_schema_that_names_itself_over_and_over_is_given_up() {
        let start = std::time::Instant::now();
        let again = json!({"$ref": "#/properties/x"});
        let far = json!({"$ref": format!("#/properties/{}", "y".repeat(1 << 20))});
        for schema in [
            json!({"anyOf": vec![again.clone(); 100]}),
            json!({"allOf": vec![again.clone(); 100]}),
            json!({"anyOf": vec![json!({"allOf": vec![json!({"oneOf": vec![again; 10]}); 10]}); 10]}),
            json!({"oneOf": [{"$ref": "#/properties/far"}, {"$ref": "#/properties/far"}]}),
        ] {
            let properties = (0..100).map(|i| (format!("x{i}"), schema.clone()));
            let more = [("x".to_owned(), schema.clone()), ("far".to_owned(), far.clone())];
            let properties: Value = properties.chain(more).collect();
            let tools = Tools::new(&[json!({"name": "f", "parameters": {"properties": properties}})]);
            assert_eq!(tools.find("f").unwrap().types("x"), Types::ANY);
        }
        // A million looks at most, each far below a microsecond; all of them would take longer than the universe has.
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn an_alternative_of_many_values_keeps_its_types() {
        let many: Vec<Value> = (0..900).map(|i| json!(format!("{i}"))).collect();
        assert_eq!(typed(json!({"enum": many}), "17"), "\"17\"");
        assert_eq!(typed(json!({"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}), "17"), "17");
        assert_eq!(typed(json!({"anyOf": vec![json!({"type": "string"}); 300]}), "17"), "\"17\"");
    }
}
