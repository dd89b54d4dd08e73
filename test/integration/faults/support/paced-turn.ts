/** What a prompt tells the stand-in of the agent SDK to answer. */
export interface PacedTurn {
  /** In every piece, so that an answer can be told from all others. */
  mark: string
  pieces: number
  /** Length of a piece. */
  pieceChars: number
  /** Pause before each piece; none where it is 0. */
  paceMs: number
}

/** Piece `index` of the answer: one assistant message. */
export function pieceOf({ mark, pieceChars }: PacedTurn, index: number): string {
  return `${mark}/${index} `.padEnd(pieceChars, 'paced answer ')
}

export function answerOf(turn: PacedTurn): string {
  return Array.from({ length: turn.pieces }, (_, index) => pieceOf(turn, index)).join('')
}
