//! `tenantctl top`: the tenants on the full screen, as they are each tick.
//!
//! Drawing is a pure function of what was told so far and the size of the screen ([`draw`], [`view`]); here are
//! the four who bring news, a thread each: the daemon by `Watch`, the keyboard, signals, and the terminal when it
//! is gone. Whatever ends the program, the terminal is as it was before.
//!
//! Where standard output is not a terminal there is nothing to redraw: the status is printed once, plain.

pub mod bars;
pub mod draw;
mod newest;
pub mod view;

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::{Colour, TopArgs};
use super::client::{ClientError, Endpoint};
use super::exit::Exit;
use super::status;
use super::text::colours;
use crate::varlink::interface::{Nothing, WatchReply, method};
use newest::{Newest, Word};
use view::{Key, View};

/// How long to wait before a daemon that is away is looked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// What can happen.
enum News {
    /// The daemon said something, or is away: see [`Newest`].
    Daemon,
    Key(Key),
    Resized,
    End,
}

/// Runs the command, until the person has seen enough.
///
/// # Errors
/// The daemon does not answer at the start; the terminal cannot be drawn on.
pub(super) fn run(daemon: &Endpoint, args: &TopArgs, colour: Colour) -> anyhow::Result<Exit> {
    let first = daemon.call::<method::GetStatus>(&Nothing {})?;
    if !io::stdout().is_terminal() {
        io::stdout().lock().write_all(status::shown(&first.status).as_bytes())?;
        return Ok(Exit::Ok);
    }
    let mut view = View::new(args.sort, colours(colour, &io::stdout()));
    view.told(first.status);
    let (sender, news) = mpsc::channel();
    let newest = Arc::new(Newest::default());
    // Caught before the terminal is changed, so that none of them leaves it so.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    listen(&sender, &newest, daemon.clone(), signals);
    let shown = show(&mut terminal, &mut view, &news, &newest);
    ratatui::try_restore()?;
    shown?;
    Ok(Exit::Ok)
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    news: &Receiver<News>,
    newest: &Newest,
) -> io::Result<()> {
    loop {
        let mut nr_rows = 0;
        terminal.draw(|frame| nr_rows = draw::screen(frame, view))?;
        view.shown(nr_rows);
        // A channel without senders has nothing more to show.
        let Ok(news) = news.recv() else { return Ok(()) };
        match news {
            News::Daemon => match newest.take() {
                Some(Word::Told(status)) => view.told(*status),
                Some(Word::Away(why)) => view.away(why),
                None => {}
            },
            News::Key(Key::Quit) | News::End => return Ok(()),
            News::Key(key) => view.press(key),
            News::Resized => {}
        }
    }
}

/// Starts the four threads. They end with the program.
fn listen(sender: &Sender<News>, newest: &Arc<Newest>, daemon: Endpoint, mut signals: Signals) {
    let (to, newest) = (sender.clone(), Arc::clone(newest));
    thread::spawn(move || {
        let say = |word| {
            // Where the last word still lies there, so does the news of it.
            if newest.put(word) {
                let _ = to.send(News::Daemon);
            }
        };
        loop {
            let Err(error) = watch(&daemon, say);
            say(Word::Away(error.to_string()));
            thread::sleep(PAUSE);
        }
    });
    let to = sender.clone();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if news_of(&event).is_some_and(|news| to.send(news).is_err()) {
                return;
            }
        }
        let _ = to.send(News::End);
    });
    let to = sender.clone();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = to.send(News::End);
        }
    });
    let to = sender.clone();
    thread::spawn(move || {
        terminal_gone();
        let _ = to.send(News::End);
    });
}

/// Returns when the terminal has hung up. A signal tells it only to the session whose terminal it was, and the
/// keyboard's library reads the end of a terminal over and over without a word.
fn terminal_gone() {
    let stdout = io::stdout();
    let mut terminal = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    while let Err(Errno::EINTR) = poll(&mut terminal, PollTimeout::NONE) {}
}

/// Passes on tick after tick, until the daemon goes.
fn watch(daemon: &Endpoint, say: impl Fn(Word)) -> Result<Infallible, ClientError> {
    let mut frames = daemon.connect()?.watch()?;
    loop {
        let WatchReply { status, .. } = frames.next_tick()?;
        say(Word::Told(Box::new(status)));
    }
}

fn news_of(event: &Event) -> Option<News> {
    let key = match event {
        Event::Resize(..) => return Some(News::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(News::End);
    }
    let key = match key.code {
        KeyCode::Char(letter) => Key::of_letter(letter)?,
        KeyCode::Esc => Key::Leave,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        _ => return None,
    };
    Some(News::Key(key))
}
