//! Metadata values as the file stores them.

macro_rules! kinds {
    ($($variant:ident, $ty:ty, $id:literal, $name:literal;)*) => {
        /// A metadata value, in the file's own type.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Value {
            $($variant($ty),)*
            Array(Array),
        }

        /// A metadata array. Arrays of arrays do not occur: the parser refuses them.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Array {
            $($variant(Vec<$ty>),)*
        }

        impl Value {
            /// The format's id of this value's type.
            pub(crate) fn type_id(&self) -> u32 {
                match self {
                    $(Self::$variant(_) => $id,)*
                    Self::Array(_) => ARRAY_ID,
                }
            }

            /// The type in words, such as `u32` or `array of string`.
            pub fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Array(array) => array.type_name(),
                }
            }
        }

        impl Array {
            /// The format's id of the element type.
            pub(crate) fn type_id(&self) -> u32 {
                match self { $(Self::$variant(_) => $id,)* }
            }

            /// The type in words, such as `array of u32`.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => concat!("array of ", $name),)* }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                match self { $(Self::$variant(it) => it.len(),)* }
            }

            /// Whether there is no element.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Element `i` as a value.
            pub(crate) fn scalar(&self, i: usize) -> Option<Scalar<'_>> {
                match self { $(Self::$variant(it) => it.get(i).map(Scalar::from),)* }
            }
        }

        impl Value {
            /// The value, unless it is an array.
            pub(crate) fn scalar(&self) -> Option<Scalar<'_>> {
                match self {
                    $(Self::$variant(it) => Some(Scalar::from(it)),)*
                    Self::Array(_) => None,
                }
            }
        }

        $(
            impl From<$ty> for Value {
                fn from(it: $ty) -> Self {
                    Self::$variant(it)
                }
            }

            impl From<Vec<$ty>> for Value {
                fn from(it: Vec<$ty>) -> Self {
                    Self::Array(Array::$variant(it))
                }
            }
        )*
    };
}

/// The format's id of an array.
pub(crate) const ARRAY_ID: u32 = 9;

kinds! {
    U8, u8, 0, "u8";
    I8, i8, 1, "i8";
    U16, u16, 2, "u16";
    I16, i16, 3, "i16";
    U32, u32, 4, "u32";
    I32, i32, 5, "i32";
    F32, f32, 6, "f32";
    Bool, bool, 7, "bool";
    String, Box<str>, 8, "string";
    U64, u64, 10, "u64";
    I64, i64, 11, "i64";
    F64, f64, 12, "f64";
}

impl From<&str> for Value {
    fn from(it: &str) -> Self {
        Self::String(it.into())
    }
}

/// A number or text without its width, so that integer widths and bool compare as what they mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Int(i128),
    Float(f64),
    Text(&'a str),
}

macro_rules! scalar_from {
    ($($ty:ty => $to:expr;)*) => { $(impl<'a> From<&'a $ty> for Scalar<'a> {
        fn from(it: &'a $ty) -> Self {
            let to: fn(&'a $ty) -> Self = $to;
            to(it)
        }
    })* };
}

scalar_from! {
    u8 => |it| Self::Int((*it).into());
    i8 => |it| Self::Int((*it).into());
    u16 => |it| Self::Int((*it).into());
    i16 => |it| Self::Int((*it).into());
    u32 => |it| Self::Int((*it).into());
    i32 => |it| Self::Int((*it).into());
    u64 => |it| Self::Int((*it).into());
    i64 => |it| Self::Int((*it).into());
    bool => |it| Self::Int((*it).into());
    f32 => |it| Self::Float((*it).into());
    f64 => |it| Self::Float(*it);
    Box<str> => |it| Self::Text(it);
}

impl std::fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(it) => write!(f, "{it}"),
            Self::Float(it) => write!(f, "{it:?}"),
            Self::Text(it) => f.write_str(it),
        }
    }
}
