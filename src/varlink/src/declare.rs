//! Macro for the table of methods in [`super::interface`].
//!
//! **Problem.** A method has a name, an access right, parameters, a reply and an implementation. If these
//! are listed in five places, a new method compiles with one of them forgotten, and a forgotten access
//! right lets every reader change the host. **Answer.** A method is one row of one table, in the section
//! `open`, `read`, `change` or `own`. The row gives the variant of `Method`, its name, its access, and the types of
//! its parameters and reply. Reading and changing requests are two enums: the code for [`Read`] requests
//! cannot reach the agent, and a `match` over either enum does not compile with a method left out.
//!
//! [`Read`]: super::interface::Read

/// Declares the methods of the socket: see the head of this file.
macro_rules! methods {
    (
        open { $($(#[$open_doc:meta])* $open_in:ident.$open:ident($open_takes:ty) -> $open_gives:ty;)* }
        read { $($(#[$read_doc:meta])* $read_in:ident.$read:ident($read_takes:ty) -> $read_gives:ty;)* }
        change { $($(#[$change_doc:meta])* $change_in:ident.$change:ident($change_takes:ty) -> $change_gives:ty;)* }
        own { $($(#[$own_doc:meta])* $own_in:ident.$own:ident($own_takes:ty) -> $own_gives:ty;)* }
    ) => {
        /// A method of [`MANAGER`], [`JOBS`] or [`SERVICE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method {
            $($(#[$open_doc])* $open,)*
            $($(#[$read_doc])* $read,)*
            $($(#[$change_doc])* $change,)*
            $($(#[$own_doc])* $own,)*
        }

        impl Method {
            /// Every method.
            pub const ALL: &[Method] = &[
                $(Method::$open,)* $(Method::$read,)* $(Method::$change,)* $(Method::$own,)*
            ];

            /// Interface and name of the method.
            pub const fn names(self) -> (&'static str, &'static str) {
                match self {
                    $(Method::$open => ($open_in, stringify!($open)),)*
                    $(Method::$read => ($read_in, stringify!($read)),)*
                    $(Method::$change => ($change_in, stringify!($change)),)*
                    $(Method::$own => ($own_in, stringify!($own)),)*
                }
            }

            /// Required permission of the caller.
            pub const fn access(self) -> Access {
                match self {
                    $(Method::$open => Access::Open,)*
                    $(Method::$read => Access::Read,)*
                    $(Method::$change => Access::Change,)*
                    $(Method::$own => Access::Own,)*
                }
            }

            /// Converts `call` to the request of this method.
            ///
            /// # Errors
            /// [`CallError::InvalidParameter`].
            pub fn request(self, call: &Call) -> Result<Request, CallError> {
                Ok(match self {
                    $(Method::$open => Request::Read(Read::$open(call.parameters()?)),)*
                    $(Method::$read => Request::Read(Read::$read(call.parameters()?)),)*
                    $(Method::$change => Request::Change(Change::$change(call.parameters()?)),)*
                    $(Method::$own => Request::Change(Change::$own(call.parameters()?)),)*
                })
            }

            /// Calls `visitor` for every method with the types of its parameters and of its reply.
            pub fn visit(visitor: &mut impl Visitor) {
                $(visitor.method::<method::$open>();)*
                $(visitor.method::<method::$read>();)*
                $(visitor.method::<method::$change>();)*
                $(visitor.method::<method::$own>();)*
            }
        }

        /// A request for known data, with its parameters.
        #[derive(Clone, Debug)]
        pub enum Read {
            $($(#[$open_doc])* $open($open_takes),)*
            $($(#[$read_doc])* $read($read_takes),)*
        }

        /// A request to change something, with its parameters.
        #[derive(Clone, Debug)]
        pub enum Change {
            $($(#[$change_doc])* $change($change_takes),)*
            $($(#[$own_doc])* $own($own_takes),)*
        }

        /// Each method as a type, so that a client cannot expect the reply of another method.
        pub mod method {
            use super::{Method, Signature};
            #[allow(unused_imports, reason = "named by the rows of the table")]
            use super::*;

            methods!(@signatures
                $($(#[$open_doc])* $open($open_takes) -> $open_gives;)*
                $($(#[$read_doc])* $read($read_takes) -> $read_gives;)*
                $($(#[$change_doc])* $change($change_takes) -> $change_gives;)*
                $($(#[$own_doc])* $own($own_takes) -> $own_gives;)*
            );
        }
    };
    (@signatures $($(#[$doc:meta])* $name:ident($takes:ty) -> $gives:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;
            impl Signature for $name {
                const METHOD: Method = Method::$name;
                type Parameters = $takes;
                type Reply = $gives;
            }
        )*
    };
}

pub(super) use methods;
