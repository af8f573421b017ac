//! A client's questions whether its datagrams come.
//!
//! A client asks when nobody has answered them, to tell a path that carries none from a server that
//! is slow. The engine has the answer, and gives it once it has read all that was there: a late
//! answer says that this end is slow, and an early one that it is not.

use crate::control::ControlError;
use crate::messages::{Arrivals, ArrivalsSeen, Message};

/// How often the client of a session has asked.
#[derive(Debug, Default)]
pub(crate) struct PathQuestions(usize);

/// Questions of one session that are answered: a client asks once for each session whose path does
/// not open, and each makes the engine read its sockets.
const ANSWERED_MOST: usize = 8;

impl PathQuestions {
    /// The answer to one more question, which `arrivals` brings.
    ///
    /// # Errors
    /// If the client asks without end, or there is no engine any more.
    pub async fn answer(
        &mut self,
        arrivals: impl Future<Output = Option<Arrivals>>,
    ) -> Result<Message, ControlError> {
        self.0 += 1;
        if self.0 > ANSWERED_MOST {
            return Err(ControlError::Unexpected("questions without end".into()));
        }
        let arrivals = arrivals.await.ok_or(ControlError::Closed)?;
        Ok(Message::ArrivalsSeen(ArrivalsSeen { arrivals }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn questions_without_end_end_the_session() {
        let mut questions = PathQuestions::default();
        for _ in 0..ANSWERED_MOST {
            let seen = questions.answer(async { Some(Arrivals::None) }).await.unwrap();
            assert_eq!(seen, Message::ArrivalsSeen(ArrivalsSeen { arrivals: Arrivals::None }));
        }
        assert!(questions.answer(async { Some(Arrivals::Some) }).await.is_err());
    }

    #[tokio::test]
    async fn without_an_engine_there_is_no_answer() {
        assert!(PathQuestions::default().answer(async { None }).await.is_err());
    }
}
