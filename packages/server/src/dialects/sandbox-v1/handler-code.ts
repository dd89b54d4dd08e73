import type { Language } from '@ash-ai/shared'

/** At the left margin: one inside of something else is not the one to call. */
const DEFINITIONS: Record<Language, RegExp[]> = {
  python: [/^(?:async +)?def +handler *\(/m, /^handler *=[^=]/m, /^from +\S+ +import (?:.*[ ,])?handler\b/m],
  javascript: [
    /^(?:export +)?(?:default +)?(?:async +)?function(?: +| *\* *)handler *\(/m,
    /^(?:export +)?(?:const|let|var) +handler *=/m,
    /^(?:(?:module\.)?exports\.)?handler *=[^=]/m,
  ],
  shell: [],
}

/** The dialect has one field for both: code that defines `handler` is called with the event, other code just runs. */
export function definesHandler(code: string, language: Language | undefined): boolean {
  const patterns = language === undefined ? Object.values(DEFINITIONS).flat() : DEFINITIONS[language]
  return patterns.some((pattern) => pattern.test(code))
}
