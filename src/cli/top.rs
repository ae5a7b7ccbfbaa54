//! `tenantctl top`: the tenants on the full screen, updated at each tick.
//!
//! Drawing is a pure function of the state of the screen and its size ([`draw`], [`view`]). This file has the
//! sources of events, a thread each: the daemon by `Watch`, the keyboard, signals, and the hangup of the
//! terminal. Without events the age of the last tick is checked once a second, so that a stopped daemon is
//! distinguishable from one that has nothing to report. On every exit the terminal is restored.
//!
//! Where standard output is not a terminal, the status is printed once as text.

pub mod bars;
pub mod draw;
mod newest;
pub mod view;

use std::convert::Infallible;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

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
use newest::{Message, Newest};
use view::{Key, View};

/// Pause before the next attempt to connect to a daemon that does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Time after which the age of the last tick is checked.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// An event.
enum News {
    /// There is a message about the daemon: see [`Newest`].
    Daemon,
    Key(Key),
    Resized,
    End,
}

/// Runs the command until the user quits.
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
    view.update(first.status, Instant::now());
    let (sender, news) = mpsc::channel();
    let newest = Arc::new(Newest::default());
    // Handled before the terminal is changed, so that a signal cannot leave it changed.
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
        let news = match news.recv_timeout(AGE_CHECK) {
            Ok(news) => news,
            Err(RecvTimeoutError::Timeout) => {
                view.check_age(Instant::now());
                continue;
            }
            // All sources have ended.
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        match news {
            News::Daemon => match newest.take() {
                Some(Message::Tick(status)) => view.update(*status, Instant::now()),
                Some(Message::Away(why)) => {
                    view.away(why);
                    view.check_age(Instant::now());
                }
                None => {}
            },
            News::Key(Key::Quit) | News::End => return Ok(()),
            News::Key(key) => view.press(key),
            News::Resized => {}
        }
    }
}

/// Starts a thread for each source of events. They end with the program.
fn listen(sender: &Sender<News>, newest: &Arc<Newest>, daemon: Endpoint, mut signals: Signals) {
    let (to, newest) = (sender.clone(), Arc::clone(newest));
    thread::spawn(move || {
        let send = |message| {
            // Where the previous message was not taken yet, its event is still in the channel.
            if newest.put(message) {
                let _ = to.send(News::Daemon);
            }
        };
        loop {
            let Err(error) = watch(&daemon, send);
            send(Message::Away(error.to_string()));
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

/// Returns when the terminal has hung up. SIGHUP reaches only the session of that terminal, and crossterm
/// reads the end of a terminal in an endless loop without an error.
fn terminal_gone() {
    let stdout = io::stdout();
    let mut terminal = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    while let Err(Errno::EINTR) = poll(&mut terminal, PollTimeout::NONE) {}
}

/// Sends every tick, until the daemon does not answer.
fn watch(daemon: &Endpoint, send: impl Fn(Message)) -> Result<Infallible, ClientError> {
    let mut frames = daemon.connect()?.watch()?;
    loop {
        let WatchReply { status, .. } = frames.next_tick()?;
        send(Message::Tick(Box::new(status)));
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
