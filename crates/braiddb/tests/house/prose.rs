//! Finds sentences that a stranger cannot understand at first reading, in comments, error messages
//! and Markdown pages. `docs/internals/writing.md` has the rules of which these are symptoms.

use std::ops::AddAssign;
use std::path::Path;

/// Longest sentence, in words.
const MAX_SENTENCE_WORDS: usize = 40;
/// Table cells with fewer words are names or figures, not prose.
const MIN_CELL_WORDS: usize = 5;

/// Phrases that begin a sentence without naming its subject. Alternatives are separated by `|`; the
/// first word is capitalised.
const HEADLESS: [&str; 7] = [
    "What|Who|Whoever|Whom|Whose|Whether|Those|Such|Wherever|Whatever",
    "With which",
    "By how",
    "Of what|which|those",
    "As|How many|much|soon",
    "From|To|In|For when|whom|what",
    "That|Where of|to",
];

/// Phrases that obscure a sentence, with the remedy for each. Alternatives are separated by `|`, `?`
/// marks a word that may be absent, and `_` is any word.
const PHRASES: [(&str, &str); 36] = [
    (WHO, "who|whom|whose is|are|was|has|have|had|needs|need|waits|wait|meets|comes|reads|writes"),
    (WHO, "who|whom|whose finds|looks|holds|asks|does|do|sees|may|can|must|will|gets|takes|ends"),
    (WHO, "who|whom|whose begins|opens|drops|calls|wants|else|it|they"),
    (WHO, "whoever"),
    (WHO, "nobody|somebody"),
    (TOLD, "is|are|was|were|be|been|being told|said"),
    (TOLD, "tell|tells of|how|what|which|who|whether|the|that|apart|each|them|it"),
    (TOLD, "say|says so|that|what|which|how|who|whether|of|where"),
    (THERE, "that|what|which|as|than|if|whom|where|who there is|are|was|were"),
    (THERE, "there|here is|are to be"),
    (THERE, "is|are to be"),
    (THERE, "what is there"),
    (VERB, "give|gives|given|giving|gave _? back"),
    (VERB, "take|takes|taken|taking|took _? back"),
    (VERB, "come|comes|coming|came free"),
    (VERB, "go|goes on"),
    (VERB, "is|are|was over"),
    (VERB, "leave|leaves|leaving memory"),
    (VERB, "lead|leads|led on? to"),
    (VERB, "make|makes up for"),
    (VERB, "stand|stands for"),
    (VERB, "come|comes|bring|brings about"),
    (VERB, "by itself"),
    (VERB, "in vain"),
    (VERB, "anew"),
    (FILLER, "as it|they|that|those is|are|was|were|does|do|did"),
    (FILLER, "as ever"),
    (FILLER, "as there"),
    (FILLER, "of its|one's|his|their own"),
    (FILLER, "but for|that|those|of|in"),
    (FILLER, "at most at once"),
    (FILLER, "beside"),
    (FILLER, "besides"),
    (FILLER, "meanwhile"),
    (FILLER, "thereby"),
    (FILLER, "hence"),
];
const NO_SUBJECT: &str = "begin with the subject of the sentence";
const WHO: &str = "name the transaction, reader, caller or worker";
const TOLD: &str = "a program returns, reports, logs or documents";
const THERE: &str = "name the thing instead of its existence";
const VERB: &str = "use the field's verb: release, undo, free, continue, reference, end, evict";
const FILLER: &str = "delete the phrase, or state the fact";
const LONG: &str = "split the sentence";

/// Number of words and unclear sentences in some prose.
#[derive(Clone, Debug, Default)]
pub struct Prose {
    pub words: usize,
    /// Each as `file:line: remedy: sentence`.
    pub signals: Vec<String>,
}

impl Prose {
    /// Reads the comments and error messages of a Rust file, or the text of a Markdown page.
    pub fn of(path: &Path, text: &str) -> Self {
        let sentences = match path.extension().is_some_and(|extension| extension == "rs") {
            true => of_code(text),
            false => of_page(text),
        };
        let mut prose = Self::default();
        for (line, sentence) in sentences {
            prose.words += words(&sentence);
            let place = format!("{}:{line}", path.display());
            let remedies = remedies(&sentence).into_iter();
            prose.signals.extend(remedies.map(|remedy| format!("{place}: {remedy}: {sentence}")));
        }
        prose
    }

    /// Signals per 1000 words.
    pub fn rate(&self) -> f64 {
        1000.0 * self.signals.len() as f64 / self.words.max(1) as f64
    }
}

impl AddAssign for Prose {
    fn add_assign(&mut self, other: Self) {
        self.words += other.words;
        self.signals.extend(other.signals);
    }
}

/// A sentence, and the number of the line in which it begins.
type Sentence = (usize, String);

fn of_code(text: &str) -> Vec<Sentence> {
    let (mut found, mut block, mut is_example) = (Vec::new(), Vec::new(), false);
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        let Some(body) = comment(line) else {
            is_example = false;
            found.extend(sentences(&mut block));
            continue;
        };
        let fences = body.starts_with("```");
        is_example ^= fences;
        match is_example || fences || body.is_empty() || body.starts_with(['|', '#']) {
            true => found.extend(sentences(&mut block)),
            false => block.push((number, body.to_owned())),
        }
    }
    found.extend(messages(text));
    found
}

/// The text of a line that is a comment, without its marker.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let markers = ["///", "//!", "//"];
    let body = markers.iter().find_map(|marker| line.strip_prefix(marker))?;
    (!body.starts_with('/')).then(|| body.trim())
}

/// The messages of `#[error("…")]`.
fn messages(text: &str) -> impl Iterator<Item = Sentence> {
    text.match_indices("#[error(").filter_map(|(place, attribute)| {
        let message = text[place + attribute.len()..].trim_start().strip_prefix('"')?;
        let end = message.match_indices('"').find(|(end, _)| !message[..*end].ends_with('\\'))?.0;
        let line = 1 + text[..place].matches('\n').count();
        Some((line, message[..end].split("\\\n").map(str::trim_start).collect()))
    })
}

fn of_page(text: &str) -> Vec<Sentence> {
    let (mut found, mut block, mut is_example) = (Vec::new(), Vec::new(), false);
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        let fences = line.trim_start().starts_with("```");
        is_example ^= fences;
        let is_indented_code = line.starts_with("    ") && block.is_empty();
        let line = match fences || is_example || is_indented_code || line.starts_with('#') {
            true => "",
            false => line.trim(),
        };
        if line.is_empty() || line.starts_with('|') {
            found.extend(sentences(&mut block));
            let cells = line.trim_matches('|').split('|').map(str::trim);
            let prose = cells.filter(|cell| words(cell) >= MIN_CELL_WORDS);
            found.extend(prose.map(|cell| (number, cell.to_owned())));
        } else {
            block.push((number, line.to_owned()));
        }
    }
    found
}

/// Takes the lines of a paragraph and splits them into sentences.
fn sentences(block: &mut Vec<Sentence>) -> Vec<Sentence> {
    let (mut found, mut has_ended): (Vec<Sentence>, bool) = (Vec::new(), true);
    for (number, line) in block.drain(..) {
        let (bullet, item) = line.split_once(' ').unwrap_or((&line, ""));
        let is_item = ["-", "*", "+"].contains(&bullet)
            || bullet.strip_suffix('.').is_some_and(|digits| digits.parse::<u32>().is_ok());
        for (place, word) in if is_item { item } else { &line }.split_whitespace().enumerate() {
            let may_begin = word.starts_with(|c: char| c.is_uppercase() || "`*\"([".contains(c));
            let begins = is_item && place == 0 || has_ended && may_begin;
            match found.last_mut() {
                Some((_, sentence)) if !begins => {
                    sentence.push(' ');
                    sentence.push_str(word);
                }
                _ => found.push((number, word.trim_start_matches("**").to_owned())),
            }
            has_ended = word.ends_with(['.', '!', '?', ':', ';']);
        }
    }
    found
}

/// Number of words of some prose; code in it is one word.
fn words(prose: &str) -> usize {
    tokens(prose).iter().filter(|token| token.starts_with(char::is_alphabetic)).count()
}

/// Splits a sentence into words and punctuation marks. Code becomes the word `x`.
fn tokens(sentence: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for (part, text) in sentence.split('`').enumerate() {
        if part % 2 == 1 {
            tokens.push("x".to_owned());
            continue;
        }
        let mut is_word = false;
        for c in text.chars() {
            let continues = c.is_alphabetic() || is_word && ['\'', '-', '_'].contains(&c);
            match tokens.last_mut() {
                Some(word) if continues && is_word => word.push(c),
                _ if c.is_whitespace() => {}
                _ => tokens.push(c.to_string()),
            }
            is_word = continues;
        }
    }
    tokens
}

/// Returns the changes that a sentence needs.
fn remedies(sentence: &str) -> Vec<&'static str> {
    let tokens = tokens(sentence);
    let lower: Vec<String> = tokens.iter().map(|token| token.to_lowercase()).collect();
    let mut found = Vec::new();
    if HEADLESS.iter().any(|phrase| begins(&tokens, phrase)) && !sentence.ends_with('?') {
        found.push(NO_SUBJECT);
    }
    for (remedy, phrase) in PHRASES {
        let is_there = (0..lower.len()).any(|place| begins(&lower[place..], phrase));
        if is_there && !found.contains(&remedy) {
            found.push(remedy);
        }
    }
    if words(sentence) > MAX_SENTENCE_WORDS {
        found.push(LONG);
    }
    found
}

/// Returns true if tokens begin with a phrase.
fn begins(tokens: &[String], phrase: &str) -> bool {
    if phrase.is_empty() {
        return true;
    }
    let (first, rest) = phrase.split_once(' ').unwrap_or((phrase, ""));
    let matches = |word: &str| {
        let Some(token) = tokens.first() else { return false };
        word == "_" && token.starts_with(char::is_alphabetic)
            || word.split('|').any(|alternative| alternative == token)
    };
    match first.strip_suffix('?') {
        Some(word) => begins(tokens, rest) || matches(word) && begins(&tokens[1..], rest),
        None => matches(first) && begins(&tokens[1..], rest),
    }
}

#[test]
fn unclear_sentences_are_found() {
    let unclear = [
        ("What is in memory.", NO_SUBJECT),
        ("By how much the log grows.", NO_SUBJECT),
        ("A version is unlinked by whoever meets it.", WHO),
        ("The transaction that loses is told so.", TOLD),
        ("It counts the pages that there are.", THERE),
        ("The worker gives it back.", VERB),
        ("Scans go on after the fault.", VERB),
        ("Each worker has a queue of its own.", FILLER),
    ];
    for (sentence, remedy) in unclear {
        assert_eq!(remedies(sentence), [remedy], "{sentence}");
    }
    let clear = [
        "Returns the newest visible version.",
        "What does a commit cost?",
        "The engine returns `who is told` on failure.",
        "Lists the pages; there, is a comma between the words.",
    ];
    for sentence in clear {
        assert!(remedies(sentence).is_empty(), "{sentence}: {:?}", remedies(sentence));
    }
    assert_eq!(remedies(&"word ".repeat(41)), [LONG]);
}

#[test]
fn prose_is_found_in_comments_messages_and_pages() {
    let code = "//! First. Second\n//! line.\nlet a = 1; // not read\n/// ```\n/// let b;\n/// ```\n\
                #[error(\n    \"third: {0}\"\n)]\n";
    let read = of_code(code);
    let expected = [(1, "First."), (1, "Second line."), (7, "third: {0}")];
    assert_eq!(read, expected.map(|(line, sentence)| (line, sentence.to_owned())));
    let page = "# No\n\nOne\ntwo. Three:\n\n- four\n- Five\n\n    code\n\n```\ncode\n```\n\
                | six | seven of a cell is prose |\n";
    let read = of_page(page);
    let expected = [
        (3, "One two."),
        (4, "Three:"),
        (6, "four"),
        (7, "Five"),
        (14, "seven of a cell is prose"),
    ];
    assert_eq!(read, expected.map(|(line, sentence)| (line, sentence.to_owned())));
}
