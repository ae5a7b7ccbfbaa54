//! `tenantctl top`: the tenants on the full screen, updated at each tick.
//!
//! Drawing is a pure function of the state of the screen and its size ([`draw`], [`view`]). This file has
//! the sources of events, a thread each: the daemon by `Watch`, the keyboard, signals, the hangup of the
//! terminal, and the inspection of the open tenant ([`inspect`]). Without events the age of the last tick
//! is checked once a second, so that a stopped daemon is distinguishable from one without news. Every exit
//! restores the terminal.
//!
//! If standard output is not a terminal, or a `dumb` one, the status is printed once as text. With `--at` the
//! ticks come from a recording ([`recorded`]), and no daemon is asked.

pub mod bars;
pub mod deed;
pub mod draw;
pub mod focus;
mod frame;
mod inside;
pub mod inspect;
mod key;
mod newest;
mod prompt;
mod recorded;
pub mod view;

use std::convert::Infallible;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    self, DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEventKind, KeyModifiers,
    MouseButton, MouseEventKind,
};
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Colour, SortKey, TopArgs};
use crate::common::output::{Output, has_escapes};
use crate::common::rows::Choice;
use crate::show::status::{self, Look};
use focus::{Focus, Opened};
use inspect::{Inspection, Inspector};
use newest::{Message, Newest};
use tenantd::args::colours;
use tenantd::exit::Exit;
use tenantd_control::report::status::Status;
use tenantd_host::kernfs::RealKernFs;
use tenantd_lab::text::WIDTH;
use tenantd_varlink::client::{ClientError, Endpoint};
use tenantd_varlink::interface::{ExplainParameters, Nothing, WatchReply, method};
use view::{Key, Shown, View};

const PAUSE: Duration = Duration::from_secs(1);

const MOST_TENANTS: usize = 64;
const MOST_PRINTED: usize = 20;

const AGE_CHECK: Duration = Duration::from_secs(1);

enum News {
    Daemon,
    Inspected,
    Key(Key),
    Letter(char),
    Resized,
    End,
}

/// Runs the command until the user quits.
pub(crate) fn run(daemon: &Endpoint, args: &TopArgs, colour: Colour) -> anyhow::Result<Exit> {
    let (statuses, recorded) = match &args.at {
        Some(_) if !args.dir.exists() => {
            // The same exit code as without a running tenantd.
            eprintln!(
                "tenantctl: {}: no recording is there; tenantd makes one with --history DIR",
                args.dir.display()
            );
            return Ok(Exit::Unavailable);
        }
        Some(at) => {
            let recorded = recorded::read(&args.dir, at, args.utc)?;
            (recorded.statuses, Some(recorded.time))
        }
        None => (vec![daemon.call::<method::GetStatus>(&Nothing {})?.status], None),
    };
    let status = statuses.last().context("the recording has no tick")?;
    if let Some(name) = &args.tenant
        && !status.lines().iter().any(|line| line.name() == name)
    {
        bail!("the policy has no tenant or group `{name}`: `tenantctl status` lists them");
    }
    if !has_escapes() {
        let text = match &args.tenant {
            Some(name) if recorded.is_none() => {
                inspected(daemon, status, name, args.sort == SortKey::Memory)
            }
            _ => status::shown(status, &text_of(args)),
        };
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(Exit::Ok);
    }
    let mut view = View::new(args.sort, colours(colour, &io::stdout()));
    for status in statuses {
        view.update(status, Instant::now());
    }
    if geteuid().is_root() {
        view.permit_deeds();
    }
    if let Some(name) = &args.tenant {
        view.open(name.clone());
    }
    let (sender, news) = mpsc::channel();
    let sources = Sources::default();
    // Handled before the terminal is changed, so that a signal cannot leave it changed.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let mouse = Mouse::capture();
    match recorded {
        Some(time) => view.set_recorded(time),
        None => follow(&sender, &sources, daemon),
    }
    listen(&sender, signals);
    let shown = show(&mut terminal, &mut view, &news, &sources);
    drop(mouse);
    ratatui::try_restore()?;
    shown?;
    Ok(Exit::Ok)
}

/// Parts of the status as text, where there is no screen.
fn text_of(args: &TopArgs) -> Look {
    let choice = Choice { name: args.tenant.clone(), sort: args.sort, ..Choice::default() };
    Look { choice, output: Output::of_stdout(), is_verbose: false }
}

/// Events of the mouse, until it is dropped, also by a panic.
struct Mouse;

impl Mouse {
    fn capture() -> Mouse {
        // A terminal without a mouse ignores it.
        let _ = execute!(io::stdout(), EnableMouseCapture);
        Mouse
    }
}

impl Drop for Mouse {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), DisableMouseCapture);
    }
}

#[derive(Clone, Default)]
struct Sources {
    newest: Arc<Newest<Message>>,
    inspected: Arc<Newest<Inspection>>,
    focus: Arc<Focus>,
}

/// Contents of a tenant as text: inspected twice, so that there are rates.
fn inspected(daemon: &Endpoint, status: &Status, name: &str, by_memory: bool) -> String {
    let tenants = status.tenants_of(name).map(|tenant| tenant.name.to_string()).collect();
    let opened = Opened { name: name.to_string(), tenants };
    let (mut kernel, mut inspector) = (RealKernFs::new(), Inspector::default());
    look(daemon, &mut kernel, &mut inspector, &opened);
    thread::sleep(PAUSE);
    let mut found = look(daemon, &mut kernel, &mut inspector, &opened);
    found.sort(by_memory);
    inside::text(status, &found, (WIDTH, MOST_PRINTED))
}

fn look(
    daemon: &Endpoint,
    kernel: &mut RealKernFs,
    inspector: &mut Inspector,
    opened: &Opened,
) -> Inspection {
    let (mut homes, mut problem) = (Vec::new(), None);
    for tenant in opened.tenants.iter().take(MOST_TENANTS) {
        let parameters = ExplainParameters { tenant: tenant.clone() };
        match daemon.call::<method::Explain>(&parameters) {
            Ok(reply) => homes.extend(inspect::homes(&reply.explanation)),
            Err(error) => problem = Some(error.to_string()),
        }
    }
    let found = inspector.look(kernel, (&opened.name, &homes), Instant::now());
    Inspection { problem: found.problem.clone().or(problem), ..found }
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    news: &Receiver<News>,
    sources: &Sources,
) -> io::Result<()> {
    loop {
        sources.focus.set(view.opened());
        let mut shown = Shown::default();
        terminal.draw(|frame| shown = draw::screen(frame, view))?;
        view.shown(shown);
        let news = match news.recv_timeout(AGE_CHECK) {
            Ok(news) => news,
            Err(RecvTimeoutError::Timeout) => {
                view.check_age(Instant::now());
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        match news {
            News::Daemon => match sources.newest.take() {
                Some(Message::Tick(status)) => view.update(*status, Instant::now()),
                Some(Message::Away(why)) => {
                    view.away(why);
                    view.check_age(Instant::now());
                }
                None => {}
            },
            News::Inspected => sources.inspected.take().into_iter().for_each(|it| view.inspect(it)),
            News::Key(Key::Quit) | News::End => return Ok(()),
            News::Key(key) => view.press(key),
            News::Letter(letter) => match view.key_of(letter) {
                Some(Key::Quit) => return Ok(()),
                Some(key) => view.press(key),
                None => {}
            },
            News::Resized => {}
        }
        if let Some(deed) = view.take_deed() {
            view.tell(deed.carry_out(&mut RealKernFs::new()));
        }
    }
}

/// Starts the threads that ask the daemon and inspect the open tenant. They end with the program.
fn follow(sender: &Sender<News>, sources: &Sources, daemon: &Endpoint) {
    let (to, Sources { newest, inspected, focus }) = (sender.clone(), sources.clone());
    let asks = daemon.clone();
    thread::spawn(move || {
        let (mut kernel, mut inspector) = (RealKernFs::new(), Inspector::default());
        loop {
            let opened = focus.wait();
            let found = look(&asks, &mut kernel, &mut inspector, &opened);
            if inspected.put(found) && to.send(News::Inspected).is_err() {
                return;
            }
            focus.pause(&opened, PAUSE);
        }
    });
    let (to, daemon) = (sender.clone(), daemon.clone());
    thread::spawn(move || {
        let send = |message| {
            // If the previous message was not taken yet, its event is still in the channel.
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
}

/// Starts a thread for each other source of events.
fn listen(sender: &Sender<News>, mut signals: Signals) {
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
        Event::Mouse(mouse) => {
            return Some(News::Key(match mouse.kind {
                MouseEventKind::ScrollUp => Key::WheelUp,
                MouseEventKind::ScrollDown => Key::WheelDown,
                MouseEventKind::Down(MouseButton::Left) => Key::Click(mouse.row),
                _ => return None,
            }));
        }
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(News::End);
    }
    let key = match key.code {
        KeyCode::Char(letter) => return Some(News::Letter(letter)),
        KeyCode::Backspace => Key::Erase,
        KeyCode::Enter => Key::Open,
        KeyCode::Esc => Key::Leave,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    };
    Some(News::Key(key))
}
