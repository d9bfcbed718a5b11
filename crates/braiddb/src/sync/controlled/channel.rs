//! Channels between threads of a controlled schedule.

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;
use std::sync::mpsc;

use super::finding::SwitchPoint;
use super::schedule::{part, point};

/// The resource that both ends wait for; its address is unique.
type ChannelResource = Arc<u8>;

fn announce(shared: &ChannelResource) {
    if let Some(part) = part() {
        part.announce(Arc::as_ptr(shared) as usize);
    }
}

fn wait(shared: &ChannelResource, place: &'static Location<'static>) -> bool {
    part().is_some_and(|part| {
        part.wait(Arc::as_ptr(shared) as usize, None, place);
        true
    })
}

/// One end of a channel; its drop disconnects the channel and announces that.
struct ChannelEnd<E>(ManuallyDrop<E>, ChannelResource);

impl<E> Drop for ChannelEnd<E> {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.0) };
        announce(&self.1);
    }
}

impl<E: Clone> Clone for ChannelEnd<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

/// Sender that never waits.
pub(crate) struct Sender<T>(ChannelEnd<mpsc::Sender<T>>);

/// Sender that waits while the channel is full.
pub(crate) struct SyncSender<T>(ChannelEnd<mpsc::SyncSender<T>>);

/// Receiver of a channel.
pub(crate) struct Receiver<T>(ChannelEnd<mpsc::Receiver<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let ((sender, receiver), shared) = (mpsc::channel(), ChannelResource::new(0));
    let end = ChannelEnd(ManuallyDrop::new(sender), shared.clone());
    (Sender(end), Receiver(ChannelEnd(ManuallyDrop::new(receiver), shared)))
}

pub(crate) fn sync_channel<T>(most: usize) -> (SyncSender<T>, Receiver<T>) {
    let ((sender, receiver), shared) = (mpsc::sync_channel(most), ChannelResource::new(0));
    let end = ChannelEnd(ManuallyDrop::new(sender), shared.clone());
    (SyncSender(end), Receiver(ChannelEnd(ManuallyDrop::new(receiver), shared)))
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Sender<T> {
    #[track_caller]
    pub(crate) fn send(&self, value: T) -> Result<(), mpsc::SendError<T>> {
        point(SwitchPoint::Queue);
        self.0.0.send(value)?;
        announce(&self.0.1);
        Ok(())
    }
}

impl<T> SyncSender<T> {
    #[track_caller]
    pub(crate) fn send(&self, mut value: T) -> Result<(), mpsc::SendError<T>> {
        let place = Location::caller();
        loop {
            point(SwitchPoint::Queue);
            match self.0.0.try_send(value) {
                Ok(()) => break,
                Err(mpsc::TrySendError::Disconnected(value)) => return Err(mpsc::SendError(value)),
                Err(mpsc::TrySendError::Full(back)) if wait(&self.0.1, place) => value = back,
                Err(mpsc::TrySendError::Full(back)) => return self.0.0.send(back),
            }
        }
        announce(&self.0.1);
        Ok(())
    }
}

impl<T> Receiver<T> {
    #[track_caller]
    pub(crate) fn recv(&self) -> Result<T, mpsc::RecvError> {
        let place = Location::caller();
        loop {
            point(SwitchPoint::Queue);
            match self.0.0.try_recv() {
                Ok(value) => {
                    announce(&self.0.1);
                    return Ok(value);
                }
                Err(mpsc::TryRecvError::Disconnected) => return Err(mpsc::RecvError),
                Err(mpsc::TryRecvError::Empty) if wait(&self.0.1, place) => {}
                Err(mpsc::TryRecvError::Empty) => return self.0.0.recv(),
            }
        }
    }
}

/// Iterator that receives until all senders are dropped.
pub(crate) struct Received<'r, T>(&'r Receiver<T>);

impl<T> Iterator for Received<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'r, T> IntoIterator for &'r Receiver<T> {
    type Item = T;
    type IntoIter = Received<'r, T>;

    fn into_iter(self) -> Received<'r, T> {
        Received(self)
    }
}
