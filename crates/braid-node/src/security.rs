//! Certificates of the command line.

use std::path::Path;

use anyhow::{Context, Result};
use braid_cluster::{Security, TlsFiles};

use crate::arguments::MembershipOptions;

/// Reads the certificates, if any are named.
pub fn read(options: &MembershipOptions) -> Result<Security> {
    let (Some(certificate), Some(key), Some(authority)) =
        (&options.certificate, &options.private_key, &options.authority)
    else {
        return Ok(Security::PlainLoopback);
    };
    let read = |path: &Path| {
        std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
    };
    Ok(Security::Tls(TlsFiles {
        authority: read(authority)?,
        certificate: read(certificate)?,
        key: read(key)?,
        name: options.tls_name.clone(),
    }))
}
