//! Transfers as functions of a secret.

use smpc_core::ot::{ExtensionReceiver, ExtensionSender};

/// Tells that bytes that follow from the secret are public: a message, a challenge.
pub type Publish<'a> = &'a dyn Fn(&[u8]);

const CONTEXT: [u8; 32] = [7; 32];
const COUNT: usize = 256;

/// A setup and a chunk; what travels is published. Returns both pads, and the chosen ones.
fn transfers(seeds: [&[u8; 32]; 2], choices: &[u8], publish: Publish<'_>) -> Vec<u8> {
    let mut sender = ExtensionSender::new(&CONTEXT, seeds[0], 4).expect("a sender");
    let (mut receiver, first) = ExtensionReceiver::new(&CONTEXT, seeds[1], 4).expect("a receiver");
    publish(&first);
    let response = sender.respond(&first).expect("a response");
    publish(&response);
    let trees = receiver.finish_setup(&response).expect("corrections");
    publish(&trees);
    sender.finish_setup(&trees).expect("a setup");
    let mut corrections = vec![0; receiver.corrections(COUNT).expect("a length")];
    receiver
        .extend(COUNT, choices, &mut corrections)
        .expect("a chunk");
    publish(&corrections);
    let challenge = sender.challenge(COUNT, &corrections).expect("a challenge");
    publish(&challenge);
    let mut chosen = vec![[0; 16]; COUNT];
    let answer = receiver.random(&challenge, &mut chosen).expect("an answer");
    publish(&answer);
    let mut pads = vec![[0; 16]; 2 * COUNT];
    sender.random(&answer, &mut pads).expect("pads");
    chosen.extend(pads);
    chosen.into_flattened()
}

/// The sender's seed is secret, and with it the correlation.
pub fn sender(secret: &[u8], publish: Publish<'_>) -> Vec<u8> {
    let seed = secret.try_into().expect("32 bytes");
    transfers([seed, &[2; 32]], &[0x5a; COUNT / 8], publish)
}

/// The receiver's choices are secret.
pub fn receiver(secret: &[u8], publish: Publish<'_>) -> Vec<u8> {
    transfers([&[1; 32], &[2; 32]], secret, publish)
}
