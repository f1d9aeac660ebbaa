"""What serving adds to the engine, stage by stage."""
