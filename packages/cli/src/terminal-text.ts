/** Control characters (C0, DEL, C1) but line break and tab, and those that reorder text on the screen. */
const UNSAFE = /(?![\n\t])[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu

/**
 * Makes text from elsewhere harmless on a terminal: agents and file names are hostile, and an escape sequence
 * can forge output or type into the shell. What would act is shown instead.
 */
export function toSafeText(text: string): string {
  return text.replaceAll('\r\n', '\n').replace(UNSAFE, (char) => {
    const code = char.charCodeAt(0)
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16)}`
  })
}

/** The same on one line. */
export function toSafeLine(text: string): string {
  return toSafeText(text).replace(/[\n\t]+/g, ' ')
}

/** JSON that stays the same JSON but acts on no terminal. */
export function toSafeJson(value: unknown): string {
  return JSON.stringify(value).replace(UNSAFE, (char) => {
    return `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
}
