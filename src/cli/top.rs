//! `tenantctl top`: the tenants on the full screen, as they are each tick.
//!
//! Drawing is a pure function of what was told so far and the size of the screen ([`draw`], [`view`]); here are
//! the three who bring news, a thread each: the daemon by `Watch`, the keyboard, and signals. Whatever ends the
//! program, the terminal is as it was before.
//!
//! Where standard output is not a terminal there is nothing to redraw: the status is printed once, plain.

pub mod bars;
pub mod draw;
pub mod view;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::TopArgs;
use super::client::{Client, ClientError};
use super::exit::Exit;
use super::status;
use crate::control::status::Status;
use crate::varlink::interface::{Method, Nothing, StatusReply, WatchReply};
use view::{Key, View};

/// How long to wait before a daemon that is away is looked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// What can happen.
enum News {
    Told(Box<Status>),
    Away(String),
    Key(Key),
    Resized,
    End,
}

/// Runs the command, until the person has seen enough.
///
/// # Errors
/// The daemon does not answer at the start; the terminal cannot be drawn on.
pub(super) fn run(socket: &Path, args: &TopArgs, colour: bool) -> anyhow::Result<Exit> {
    let mut client = Client::connect(socket)?;
    let first: StatusReply = client.call(Method::GetStatus, &Nothing {})?;
    if !io::stdout().is_terminal() {
        io::stdout().lock().write_all(status::shown(&first.status).as_bytes())?;
        return Ok(Exit::Ok);
    }
    let mut view = View::new(args.sort, colour);
    view.told(first.status);
    let (sender, news) = mpsc::channel();
    // Caught before the terminal is changed, so that none of them leaves it so.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    listen(&sender, socket.to_path_buf(), signals);
    let shown = show(&mut terminal, &mut view, &news);
    ratatui::try_restore()?;
    shown?;
    Ok(Exit::Ok)
}

fn show(terminal: &mut DefaultTerminal, view: &mut View, news: &Receiver<News>) -> io::Result<()> {
    loop {
        terminal.draw(|frame| draw::screen(frame, view))?;
        // A channel without senders has nothing more to show.
        let Ok(news) = news.recv() else { return Ok(()) };
        match news {
            News::Told(status) => view.told(*status),
            News::Away(why) => view.away(why),
            News::Key(Key::Quit) | News::End => return Ok(()),
            News::Key(key) => view.press(key),
            News::Resized => {}
        }
    }
}

/// Starts the three threads. They end with the program, or when nobody takes their news.
fn listen(sender: &Sender<News>, socket: PathBuf, mut signals: Signals) {
    let to = sender.clone();
    thread::spawn(move || {
        loop {
            let Err(error) = watch(&socket, &to) else { return };
            if to.send(News::Away(error.to_string())).is_err() {
                return;
            }
            thread::sleep(PAUSE);
        }
    });
    let to = sender.clone();
    thread::spawn(move || {
        // A keyboard that cannot be read any more has been unplugged: the terminal is gone.
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
}

/// Passes on tick after tick; `Ok` where nobody takes them any more.
fn watch(socket: &Path, to: &Sender<News>) -> Result<(), ClientError> {
    let mut client = Client::connect(socket)?;
    client.call_more(Method::Watch, &Nothing {})?;
    loop {
        let WatchReply { status, .. } = client.answer(Method::Watch)?;
        if to.send(News::Told(Box::new(status))).is_err() {
            return Ok(());
        }
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
