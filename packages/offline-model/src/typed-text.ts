/**
 * How text begins that the Claude CLI adds in the user's name. None of it was typed, so none of it starts a turn.
 * Taken from CLI 2.1.325; a phrase missing here shows up as a wrong `prompt` in a test, never as a failure to reply.
 */
const INJECTED_STARTS = [
  '[Request interrupted', // after an interrupt
  '[SYSTEM NOTIFICATION', // background tasks
  'Output token limit hit', // after stop_reason max_tokens
  'Your response above was', // after a refusal, or a stream that broke once a block was complete
  'Your response was cut off', // after max_tokens inside a tool call
  '[Your previous response', // after max_tokens with nothing to show
  'Continue from where you left off.', // an interrupted turn run again on resume
  'This session is being continued from', // after compaction
  'Base directory for this skill:', // the Skill tool
  'Stop hook feedback', // hooks
  '[structured-output-enforce]', // a turn that ended without calling StructuredOutput
]

/** Elements the CLI wraps its own additions in: reminders, slash commands and their output, task news. */
const INJECTED_ELEMENT =
  /^<(system-reminder|local-command-[a-z]+|command-(name|message|args)|bash-(input|stdout|stderr)|task-notification)>/

const OPENING = '<system-reminder>'
const CLOSING = '</system-reminder>'

/** Whether a user-role text is something a person (or a calling program) sent as a prompt. */
export function isTyped(text: string): boolean {
  const rest = withoutReminders(text)
  return (
    rest !== '' && !INJECTED_ELEMENT.test(rest) && !INJECTED_STARTS.some((start) => rest.startsWith(start))
  )
}

/** The text with reminder blocks, and the white space around the whole, taken off. */
export function withoutReminders(text: string): string {
  // By hand, since a lazy regular expression is quadratic on text made for it, and users write this text.
  let rest = text
  let kept = ''
  for (let start = rest.indexOf(OPENING); start >= 0; start = rest.indexOf(OPENING)) {
    const end = rest.indexOf(CLOSING, start)
    if (end < 0) break
    kept += rest.slice(0, start)
    rest = rest.slice(end + CLOSING.length)
  }
  return (kept + rest).trim()
}
