//! Reading a database that a service has open.
//!
//! [`Database::open_read_only`](crate::Database::open_read_only) opens it in another process, for a report or an export, and
//! takes nothing from the service. It shows the database as it was when it was opened.
