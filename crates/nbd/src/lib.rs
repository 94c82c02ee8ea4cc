//! A client of the NBD protocol that swap can trust.
//!
//! A page that went out must come back as it was, or not at all. So this client reconnects by itself and sends again what was under
//! way, but only to the export that it knows: one that is empty, older, or another one is found out by a mark ([`identity`]) before
//! anything is sent. Pages can be encrypted ([`seal`]) under a key that is never on disk and never in a core dump ([`key`]).
//!
//! | Module | Concept |
//! |---|---|
//! | [`wire`] | numbers and fixed-size messages of the protocol; no I/O |
//! | [`reply`] | replies, checked against what was asked for; from any source of bytes |
//! | [`uri`] | where an export is |
//! | [`session`] | one connection: reaching the server, negotiation |
//! | [`tls`] | TLS over it |
//! | [`client`] | requests over one or several connections, reconnecting |
//! | [`identity`] | the mark by which an export is known again |
//! | [`key`], [`seal`] | encryption |
//! | [`store`] | pages of swap on an export |
//! | `queue` | which writes may be under way together |
//! | [`file`](mod@file) | a local file in the place of an export |
//! | [`service`] | the sockets by which the members of a group reach a store |
//! | [`link`] | the member's end of these sockets; without the feature `client` this is all there is, for `no_std` |
//! | [`error`] | what can go wrong |
#![cfg_attr(not(feature = "client"), no_std)]

#[cfg(feature = "client")]
pub mod buffers;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod error;
#[cfg(feature = "client")]
pub mod file;
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
