//! An NBD client to which swap can entrust its pages.
//!
//! A page that went out must come back unchanged, or not at all. The client therefore reconnects by
//! itself and repeats the requests that were under way, but only to the export that it knows: a
//! mark ([`identity`]) reveals an export that is empty, older, or another one, before any request
//! is repeated. Pages can be encrypted ([`seal`]) under a key that is never on disk and never in a
//! core dump ([`key`]).
//!
//! | Module | Concept |
//! |---|---|
//! | [`wire`] | numbers and fixed-size messages of the protocol; no I/O |
//! | [`reply`] | replies from any source of bytes, checked against their requests |
//! | [`uri`] | the address of an export |
//! | [`session`] | one connection: reaching the server, negotiation |
//! | [`tls`] | TLS over it |
//! | [`client`] | requests over one or several connections, reconnecting |
//! | [`identity`] | the mark by which an export is recognised |
//! | [`key`], [`seal`] | encryption |
//! | [`store`] | pages of swap on an export |
//! | `queue` | the order of overlapping writes |
//! | [`service`] | the sockets by which the members of a group reach a store |
//! | [`link`] | the member's end of these sockets |
//! | [`buffers`] | reuse of request buffers |
//! | [`error`] | the failures of exports and requests |
//!
//! Without the feature `client` the crate is [`link`] alone, and `no_std`.
#![cfg_attr(not(feature = "client"), no_std)]

#[cfg(feature = "client")]
pub mod buffers;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod error;
#[cfg(feature = "client")]
#[cfg(feature = "client")]
pub mod identity;
#[cfg(feature = "client")]
pub mod key;
pub mod link;
#[cfg(feature = "client")]
mod queue;
#[cfg(feature = "client")]
pub mod reply;
#[cfg(feature = "client")]
pub mod seal;
#[cfg(feature = "client")]
pub mod service;
#[cfg(feature = "client")]
pub mod session;
#[cfg(feature = "client")]
pub mod store;
#[cfg(feature = "client")]
pub mod tls;
#[cfg(feature = "client")]
pub mod uri;
#[cfg(feature = "client")]
pub mod wire;
