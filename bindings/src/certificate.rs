//! Python functions of certificates and private keys in the forms of TLS; nothing is signed here.

use ed25519::pkcs8::spki::der::pem::LineEnding;
use ed25519::pkcs8::{ALGORITHM_ID, EncodePrivateKey, KeypairBytes, PublicKeyBytes};
use ed25519::signature::Keypair;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use x509_cert::TbsCertificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::builder::profile::BuilderProfile;
use x509_cert::builder::{Builder, CertificateBuilder, Result as Built};
use x509_cert::der::asn1::{Any, BitString};
use x509_cert::der::oid::db::{rfc4519::COMMON_NAME, rfc5280};
use x509_cert::der::{self, DateTime, Decode, Encode, Tag};
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages};
use x509_cert::ext::{Extension, ToExtension};
use x509_cert::name::{Name, RelativeDistinguishedName};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{
    AlgorithmIdentifierOwned, DynSignatureAlgorithmIdentifier, Result as Encoded,
    SubjectPublicKeyInfo, SubjectPublicKeyInfoRef,
};
use x509_cert::time::Validity;

use crate::encodings::exactly;

const SIGNATURE: usize = 64;

/// A certificate that a member makes for itself, for both ends of TLS.
struct SelfSigned(Name);

impl BuilderProfile for SelfSigned {
    fn get_issuer(&self, subject: &Name) -> Name {
        subject.clone()
    }

    fn get_subject(&self) -> Name {
        self.0.clone()
    }

    fn build_extensions(
        &self,
        _: SubjectPublicKeyInfoRef<'_>,
        _: SubjectPublicKeyInfoRef<'_>,
        part: &TbsCertificate,
    ) -> Built<Vec<Extension>> {
        let constraints = BasicConstraints {
            ca: false,
            path_len_constraint: None,
        };
        let purposes = vec![rfc5280::ID_KP_SERVER_AUTH, rfc5280::ID_KP_CLIENT_AUTH];
        let subject = part.subject();
        Ok(vec![
            Extension {
                critical: true,
                ..constraints.to_extension(subject, &[])?
            },
            KeyUsage(KeyUsages::DigitalSignature.into()).to_extension(subject, &[])?,
            ExtendedKeyUsage(purposes).to_extension(subject, &[])?,
        ])
    }
}

/// The key that will sign a certificate.
struct Signer(PublicKeyBytes);

impl Keypair for Signer {
    type VerifyingKey = PublicKeyBytes;

    fn verifying_key(&self) -> PublicKeyBytes {
        self.0
    }
}

impl DynSignatureAlgorithmIdentifier for Signer {
    fn signature_algorithm_identifier(&self) -> Encoded<AlgorithmIdentifierOwned> {
        Ok(AlgorithmIdentifierOwned {
            oid: ALGORITHM_ID.oid,
            parameters: None,
        })
    }
}

fn subject(name: &str) -> der::Result<Name> {
    let common = AttributeTypeAndValue {
        oid: COMMON_NAME,
        value: Any::new(Tag::Utf8String, name.as_bytes())?,
    };
    Name::from_der(&[RelativeDistinguishedName::try_from(vec![common])?].to_der()?)
}

/// Returns the part of a certificate that is signed, and the certificate.
fn build(
    name: &str,
    serial: &[u8],
    key: PublicKeyBytes,
    first_year: u16,
    last_year: u16,
) -> Built<(Vec<u8>, Vec<u8>)> {
    let start = |year| DateTime::new(year, 1, 1, 0, 0, 0);
    let mut builder = CertificateBuilder::new(
        SelfSigned(subject(name)?),
        SerialNumber::new(serial)?,
        Validity::new(start(first_year)?.into(), start(last_year)?.into()),
        SubjectPublicKeyInfo::from_key(&key)?,
    )?;
    let signer = Signer(key);
    let signed = builder.finalize(&signer)?;
    let unsigned = builder.assemble(BitString::from_bytes(&[0; SIGNATURE])?, &signer)?;
    Ok((signed, unsigned.to_der()?))
}

#[pyfunction]
fn certificate_parts<'py>(
    py: Python<'py>,
    name: &str,
    serial: &[u8],
    public_key: &[u8],
    first_year: u16,
    last_year: u16,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let key = public_key
        .try_into()
        .map_err(|_| PyValueError::new_err("An Ed25519 public key is 32 bytes long"))?;
    // RFC 5280, appendix A.1: ub-common-name.
    if !(1..=64).contains(&name.len()) {
        return Err(PyValueError::new_err(format!(
            "Attribute's length must be >= 1 and <= 64, but it was {}",
            name.len()
        )));
    }
    let (signed, certificate) = build(name, serial, PublicKeyBytes(key), first_year, last_year)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let (before, _) = certificate.split_at(certificate.len() - SIGNATURE);
    Ok((PyBytes::new(py, &signed), PyBytes::new(py, before)))
}

#[pyfunction]
fn private_key_pem<'py>(py: Python<'py>, seed: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let key = KeypairBytes {
        secret_key: *exactly("seed", seed)?,
        public_key: None,
    };
    let pem = key
        .to_pkcs8_pem(LineEnding::LF)
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, pem.as_bytes()))
}

/// Adds everything here to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(certificate_parts, module)?)?;
    module.add_function(wrap_pyfunction!(private_key_pem, module)?)
}
