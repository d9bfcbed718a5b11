//! Channels awaited by futures, for controlled schedules: every access is a switch point.

/// Channel for one value, from one sender to one receiver.
pub(crate) mod oneshot {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::super::finding::SwitchPoint;
    use super::super::schedule::point;
    pub(crate) use futures_channel::oneshot::Canceled;

    /// Sends the value; dropping it without a value closes the channel.
    #[derive(Debug)]
    pub(crate) struct Sender<T>(Option<futures_channel::oneshot::Sender<T>>);

    /// Waits for the value.
    #[derive(Debug)]
    pub(crate) struct Receiver<T>(Option<futures_channel::oneshot::Receiver<T>>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = futures_channel::oneshot::channel();
        (Sender(Some(sender)), Receiver(Some(receiver)))
    }

    impl<T> Sender<T> {
        #[track_caller]
        pub(crate) fn send(mut self, value: T) -> Result<(), T> {
            point(SwitchPoint::Queue);
            self.0.take().expect("present until it is sent or dropped").send(value)
        }

        #[track_caller]
        pub(crate) fn is_canceled(&self) -> bool {
            point(SwitchPoint::Queue);
            self.0.as_ref().expect("present until it is sent or dropped").is_canceled()
        }

        #[track_caller]
        pub(crate) fn poll_canceled(&mut self, context: &mut Context<'_>) -> Poll<()> {
            point(SwitchPoint::Queue);
            self.0.as_mut().expect("present until it is sent or dropped").poll_canceled(context)
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            if self.0.is_some() {
                point(SwitchPoint::Queue);
            }
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, Canceled>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            point(SwitchPoint::Queue);
            Pin::new(self.0.as_mut().expect("there until it is dropped")).poll(context)
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            point(SwitchPoint::Queue);
        }
    }
}

/// Unbounded queue from one or several senders to one receiver.
pub(crate) mod async_queue {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_core::Stream;

    use super::super::finding::SwitchPoint;
    use super::super::schedule::point;
    use futures_channel::mpsc;
    pub(crate) use mpsc::TrySendError;

    /// Sender that never waits.
    pub(crate) struct UnboundedSender<T>(mpsc::UnboundedSender<T>);

    /// Receiver of the queue.
    pub(crate) struct UnboundedReceiver<T>(mpsc::UnboundedReceiver<T>);

    pub(crate) fn unbounded<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
        let (sender, receiver) = mpsc::unbounded();
        (UnboundedSender(sender), UnboundedReceiver(receiver))
    }

    impl<T> std::fmt::Debug for UnboundedSender<T> {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("UnboundedSender")
        }
    }

    impl<T> UnboundedSender<T> {
        #[track_caller]
        pub(crate) fn unbounded_send(&self, value: T) -> Result<(), TrySendError<T>> {
            point(SwitchPoint::Queue);
            self.0.unbounded_send(value)
        }
    }

    impl<T> Drop for UnboundedSender<T> {
        fn drop(&mut self) {
            point(SwitchPoint::Queue);
        }
    }

    impl<T> Stream for UnboundedReceiver<T> {
        type Item = T;

        fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
            point(SwitchPoint::Queue);
            Pin::new(&mut self.0).poll_next(context)
        }
    }

    impl<T> Drop for UnboundedReceiver<T> {
        fn drop(&mut self) {
            point(SwitchPoint::Queue);
        }
    }
}
