//! What a request's tools declare: names, and the JSON types of arguments.

use serde_json::{Map, Value};

/// The declared tools of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools(Vec<Tool>);

/// One declared tool.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// The schema of its arguments, an empty object if it declares none.
    parameters: Value,
}

/// References of a schema that are followed before giving up: a schema may refer to itself.
const MAX_DEPTH: usize = 16;

impl Tools {
    /// Reads declarations of either form, `{"type":"function","function":{…}}` or the inner object. Entries without a
    /// name cannot be called and are left out.
    pub(crate) fn new(declared: &[Value]) -> Self {
        let tools = declared.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.trim();
            let parameters = ["parameters", "input_schema"].iter().find_map(|key| function.get(*key));
            let parameters = parameters.cloned().unwrap_or_else(|| Value::Object(Map::new()));
            (!name.is_empty()).then(|| Tool { name: name.to_owned(), parameters })
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
    fn property(&self, key: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(key)
    }

    /// Whether the schema names `key`.
    pub(crate) fn declares(&self, key: &str) -> bool {
        self.property(key).is_some()
    }

    /// Whether `text` is the beginning of a declared key.
    pub(crate) fn may_declare(&self, text: &str) -> bool {
        let properties = self.parameters.get("properties").and_then(Value::as_object);
        properties.is_some_and(|p| p.keys().any(|key| key.starts_with(text)))
    }

    /// The only key that the schema names.
    pub(crate) fn only_key(&self) -> Option<&str> {
        let properties = self.parameters.get("properties")?.as_object()?;
        if properties.len() == 1 { properties.keys().next().map(String::as_str) } else { None }
    }

    /// The types that the value of `key` may have.
    pub(crate) fn types(&self, key: &str) -> Types {
        let schema = self.property(key).or_else(|| self.parameters.get("additionalProperties"));
        schema.map_or(Types::ANY, |schema| types_of(schema, &self.parameters, MAX_DEPTH))
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

fn types_of(schema: &Value, root: &Value, depth: usize) -> Types {
    let Some(schema) = schema.as_object().filter(|_| depth > 0) else { return Types::ANY };
    let union = |list: &Value, f: &dyn Fn(&Value) -> Types| {
        list.as_array().map(|list| list.iter().fold(Types::NONE, |all, one| all.or(f(one))))
    };
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
        Some(list) => union(list, &|name| name.as_str().map_or(Types::NONE, Types::named)),
        None => None,
    });
    if !schema.contains_key("type") {
        narrow(schema.get("enum").and_then(|list| union(list, &Types::of)));
        narrow(schema.get("const").map(Types::of));
    }
    for key in ["anyOf", "oneOf"] {
        narrow(schema.get(key).and_then(|list| union(list, &|one| types_of(one, root, depth - 1))));
    }
    for one in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        narrow(Some(types_of(one, root, depth - 1)));
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#')) {
        narrow(root.pointer(target).map(|target| types_of(target, root, depth - 1)));
    }
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        types = types.or(Types::NULL);
    }
    types
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
}
